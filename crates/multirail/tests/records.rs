//! A server's records of requests, and its end.

mod common;

use common::*;
use multirail::bench::{BENCH, BenchRequest};
use multirail::protocol::ProtocolName;
use multirail::record::{Noted, Observer, Record};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::stop::Stop;
use multirail::{Config, Error, Session, files, request};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Protocol, bytes sent, bytes received, notes and error.
type Kept = (String, u64, u64, Noted, Option<String>);

#[derive(Default)]
struct Records {
    began: Mutex<Vec<String>>,
    ended: Mutex<Vec<Kept>>,
}

impl Observer for Records {
    fn request_began(&self, protocol: ProtocolName) {
        self.began.lock().unwrap().push(protocol.to_string());
    }

    fn request_ended(&self, record: &Record<'_>) {
        let Record { protocol, sent_bytes, received_bytes, notes, error, .. } = record;
        let error = error.map(ToOwned::to_owned);
        self.ended.lock().unwrap().push((protocol.to_string(), *sent_bytes, *received_bytes, (*notes).clone(), error));
    }
}

struct Served {
    address: String,
    records: Arc<Records>,
    stop: Stop,
    thread: JoinHandle<multirail::Result<()>>,
}

fn serve(root: &Path) -> Served {
    let (told, address) = std::sync::mpsc::channel();
    let (records, stop) = (Arc::<Records>::default(), Stop::new());
    let server = Server::new(ListenConfig::new(([127, 0, 0, 1], 0), Config::new()), root.to_owned());
    let server = server.observer(records.clone()).stopped_by(stop.clone());
    let thread = std::thread::spawn(move || {
        multirail::runtime::block_on(server.serve(|address| told.send(address.to_string()).unwrap()))
    });
    Served { address: address.recv().unwrap(), records, stop, thread }
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let waited = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    bounded(what, 20, waited).await;
}

#[test]
fn each_request_has_a_record() {
    let folder = served::Folder::new("records");
    let (root, local) = (folder.0.join("root"), folder.0.join("local"));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir_all(&local).unwrap();
    std::fs::write(local.join("file"), pattern(1, 100_000)).unwrap();
    let server = serve(&root);
    runtime().block_on(async {
        let mut session = Session::connect(&server.address, Config::new()).await.unwrap();
        let options = files::Options::new();
        files::put(&mut session, &[local.join("file")], Path::new("it"), &options).await.unwrap();
        files::get(&mut session, &["it".into()], &local.join("back"), &options).await.unwrap();
        files::put(&mut session, &[local.join("file")], Path::new("../out"), &options).await.unwrap_err();
        session.close().await.unwrap();
        // A handler that fails.
        let mut session = Session::connect(&server.address, Config::new()).await.unwrap();
        request::send_request_bytes(&mut session, BENCH, &[0xff; 3]).await.unwrap();
        session.recv(&mut [0; 8]).await.unwrap_err();
        until("all records", || server.records.ended.lock().unwrap().len() == 4).await;
    });
    let ended = server.records.ended.lock().unwrap();
    let [put, get, refused, broken] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!(*server.records.began.lock().unwrap(), ["files", "files", "files", "bench"]);
    assert_eq!((put.3.operation, &put.3.paths[..]), (Some("put"), &[b"it".to_vec()][..]));
    assert!((100_000..110_000).contains(&put.2) && put.1 < 1000, "{put:?}");
    assert_eq!((put.3.entries, put.3.failed, &put.4), (Some(1), Some(0), &None));
    assert_eq!((get.3.operation, &get.3.paths[..]), (Some("get"), &[b"it".to_vec()][..]));
    assert!((100_000..110_000).contains(&get.1) && get.2 < 1000, "{get:?}");
    assert!(refused.3.refused.as_ref().is_some_and(|why| why.contains("..")), "{refused:?}");
    assert!(broken.4.as_ref().is_some_and(|error| error.contains("protocol")), "{broken:?}");
}

/// A request that lasts as long as the client wants.
async fn echo(session: &mut Session, rounds: u32) {
    let echo = BenchRequest::Echo { message_bytes: 10, rounds, strategy: "adaptive".into(), fragment_bytes: 1 };
    request::send_request(session, BENCH, &echo).await.unwrap();
    round(session).await;
}

async fn round(session: &mut Session) {
    session.send(&[7; 10]).await.unwrap();
    assert_eq!(bounded("an echo", 10, session.recv(&mut [0; 10])).await.unwrap(), 10);
}

#[test]
fn a_server_that_stops_lets_requests_finish() {
    let folder = served::Folder::new("stops");
    let server = serve(&folder.0);
    runtime().block_on(async {
        let mut idle = Session::connect(&server.address, Config::new()).await.unwrap();
        let mut running = Session::connect(&server.address, Config::new()).await.unwrap();
        echo(&mut running, 3).await;
        server.stop.stop(Duration::from_secs(3600));
        let end = bounded("the idle session's end", 10, idle.recv(&mut [0; 1])).await.unwrap_err();
        assert_says(&end, &["the server was stopped"]);
        // One that was let in just before is ended at once, with any error.
        let connect = || Session::connect(&server.address, Config::new());
        let refused = async { while !matches!(connect().await, Err(Error::Stopping)) {} };
        bounded("a refusal", 10, refused).await;
        round(&mut running).await;
        assert!(!server.thread.is_finished());
        round(&mut running).await;
        // The session gets no further request.
        let end = bounded("its end", 10, running.recv(&mut [0; 1])).await.unwrap_err();
        assert_says(&end, &["the server was stopped"]);
        until("the end of the server", || server.thread.is_finished()).await;
    });
    server.thread.join().unwrap().unwrap();
}

#[test]
fn a_server_that_stops_ends_what_takes_too_long() {
    let folder = served::Folder::new("stops-now");
    let server = serve(&folder.0);
    runtime().block_on(async {
        let mut running = Session::connect(&server.address, Config::new()).await.unwrap();
        echo(&mut running, 3).await;
        server.stop.stop(Duration::from_millis(50));
        let end = bounded("its end", 10, running.recv(&mut [0; 1])).await.unwrap_err();
        assert_says(&end, &["the server was stopped"]);
        until("the end of the server", || server.thread.is_finished()).await;
    });
    server.thread.join().unwrap().unwrap();
    let ended = server.records.ended.lock().unwrap();
    assert!(ended[0].4.is_some(), "its record says that it failed: {ended:?}");
}

//! Hosts join a broadcast by a ticket: a running one, a finished one, with and without room, beside hosts that
//! lie or leave.

mod common;

use common::{bounded, pattern};
use multirail::multicast::{
    BroadcastError, BroadcastHost, FetchError, FetchOptions, Joining, Method, Options, Outcome, Summary, Ticket,
    broadcast_path, fetch,
};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Config, Identity, Token};
use multirail_testing::for_seeds;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The folder of one test.
struct Temp(PathBuf);

impl Temp {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("join-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.0.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A broadcast that hosts join.
struct Running {
    joining: Joining,
    task: JoinHandle<Result<Summary, BroadcastError>>,
    ticket: Ticket,
}

impl Running {
    async fn begin(source: &Path, hosts: Vec<BroadcastHost>, config: Config, seed: u64) -> Self {
        let joining = Joining::new(None);
        let options = Options::new().config(config).joining(joining.clone()).destination("copy").seed(seed);
        let source = source.to_owned();
        let task = tokio::spawn(async move { broadcast_path(&source, &hosts, 0, &options).await });
        let ticket = bounded("the ticket", 30, joining.ticket()).await;
        Self { joining, task, ticket }
    }

    async fn end(self) -> Summary {
        let stopped = async {
            while !self.joining.stop() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        bounded("the end of the given hosts", 60, stopped).await;
        bounded("the end of the broadcast", 30, self.task).await.unwrap().unwrap()
    }
}

fn source(temp: &Temp, seed: u64, bytes: usize) -> (PathBuf, Vec<u8>) {
    let content = pattern(seed, bytes);
    let path = temp.dir("source").join("data");
    std::fs::write(&path, &content).unwrap();
    (path, content)
}

fn into(root: &Path) -> FetchOptions {
    FetchOptions::new().root(root).destination("copy")
}

#[test]
fn hosts_join_a_broadcast_without_hosts_and_a_finished_one() {
    for_seeds(1, |seed| {
        let temp = Temp::new("alone");
        let (path, content) = source(&temp, seed, 3_000_001);
        common::runtime().block_on(async {
            let running = Running::begin(&path, Vec::new(), Config::default(), seed).await;
            assert!(running.ticket.has_secret());
            // A ticket travels as text.
            let ticket: Ticket = running.ticket.to_string().parse().unwrap();
            let roots = ["x", "y", "z"].map(|name| temp.dir(name));
            // The first stays and serves; two come later, at once.
            let seeding = into(&roots[0]).seed_for(Duration::from_secs(600));
            let seeder = {
                let ticket = ticket.clone();
                tokio::spawn(async move { fetch(&ticket, &seeding).await })
            };
            let first = bounded("the first host", 30, async {
                while !roots[0].join("copy").exists() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            first.await;
            let [y, z] = [1, 2].map(|at| into(&roots[at]));
            let both = futures_util::future::join(fetch(&ticket, &y), fetch(&ticket, &z));
            let (y, z) = bounded("two hosts", 30, both).await;
            for fetched in [y.unwrap(), z.unwrap()] {
                assert_eq!((fetched.total_bytes, fetched.resumed_bytes), (content.len() as u64, 0));
                assert!(fetched.senders >= 1);
            }
            let summary = running.end().await;
            let seeder = bounded("the end of the host that serves", 30, seeder).await.unwrap().unwrap();
            assert_eq!(seeder.total_bytes, content.len() as u64);
            assert_eq!(summary.hosts.len(), 3);
            assert!(summary.hosts.iter().all(|host| host.has_joined_later && host.outcome == Outcome::Complete));
            for root in roots {
                common::assert_same(&std::fs::read(root.join("copy")).unwrap(), &content, "a host's copy");
            }
        });
    });
}

#[test]
fn a_host_joins_hosts_that_were_given_and_needs_their_token() {
    for_seeds(1, |seed| {
        let temp = Temp::new("given");
        let (path, content) = source(&temp, seed, 2_000_001);
        common::runtime().block_on(async {
            let config = Config::default().token(Token::new(b"the token of these hosts"));
            let roots = ["a", "b"].map(|name| temp.dir(name));
            let mut hosts = Vec::new();
            for (cluster, root) in roots.iter().enumerate() {
                let listen = ListenConfig::new(([127, 0, 0, 1], 0), config.clone());
                let (told, address) = tokio::sync::oneshot::channel();
                let mut told = Some(told);
                let server = Server::new(listen, root.clone());
                std::thread::spawn(move || {
                    let serve = server.serve(move |at| told.take().into_iter().for_each(|told| told.send(at).unwrap()));
                    let _ = multirail::runtime::block_on(serve);
                });
                hosts.push(BroadcastHost::new(address.await.unwrap().to_string(), cluster as u32));
            }
            let running = Running::begin(&path, hosts, config.clone(), seed).await;
            assert!(!running.ticket.has_secret());
            let stranger = temp.dir("stranger");
            // With the key of this process it would be let in.
            let options = into(&stranger).config(Config::default().identity(Identity::generate()));
            let refused = bounded("a refusal", 30, fetch(&running.ticket, &options)).await.unwrap_err();
            assert!(matches!(refused, FetchError::Own(_)), "{refused}");
            let joined = temp.dir("joined");
            let options = into(&joined).config(config);
            let fetched = bounded("a host that joins", 30, fetch(&running.ticket, &options)).await.unwrap();
            assert_eq!(fetched.total_bytes, content.len() as u64);
            let summary = running.end().await;
            assert!(summary.is_complete(), "{summary:#?}");
            assert_eq!(
                summary.hosts.iter().map(|host| host.has_joined_later).collect::<Vec<_>>(),
                [false, false, true]
            );
            for root in roots.iter().chain([&joined]) {
                common::assert_same(&std::fs::read(root.join("copy")).unwrap(), &content, "a host's copy");
            }
            assert!(!stranger.join("copy").exists());
        });
    });
}

#[test]
fn a_ticket_of_a_broadcast_that_is_over_is_refused() {
    let temp = Temp::new("over");
    let (path, _) = source(&temp, 1, 100_000);
    common::runtime().block_on(async {
        let first = Running::begin(&path, Vec::new(), Config::default(), 1).await;
        let old = first.ticket.clone();
        first.end().await;
        let root = temp.dir("late");
        let late = bounded("a late host", 30, fetch(&old, &into(&root))).await.unwrap_err();
        assert!(matches!(late, FetchError::Own(_)), "{late}");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    });
}

#[test]
fn a_host_without_a_place_for_the_data_says_so_and_the_rest_completes() {
    let temp = Temp::new("no-place");
    let (path, content) = source(&temp, 1, 300_000);
    common::runtime().block_on(async {
        let running = Running::begin(&path, Vec::new(), Config::default(), 1).await;
        let (bad, good) = (temp.dir("bad"), temp.dir("good"));
        // A file is where a folder has to be.
        std::fs::write(bad.join("copy"), "a file").unwrap();
        let options = FetchOptions::new().root(&bad).destination("copy/below");
        let failed = bounded("a host without a place", 30, fetch(&running.ticket, &options)).await.unwrap_err();
        assert!(matches!(&failed, FetchError::Failed(why) if why.contains("copy")), "{failed}");
        let fetched = bounded("another host", 30, fetch(&running.ticket, &into(&good))).await.unwrap();
        assert_eq!(fetched.total_bytes, content.len() as u64);
        let summary = running.end().await;
        assert!(matches!(&summary.hosts[0].outcome, Outcome::Failed(why) if why.contains("copy")), "{summary:#?}");
        assert_eq!(summary.hosts[1].outcome, Outcome::Complete);
    });
}

#[test]
fn another_method_than_adaptive_takes_no_further_hosts() {
    let temp = Temp::new("method");
    let (path, _) = source(&temp, 1, 1000);
    let options = Options::new().method(Method::Chain).joining(Joining::new(None));
    let refused = common::runtime().block_on(broadcast_path(&path, &[], 0, &options)).unwrap_err();
    assert!(matches!(&refused, BroadcastError::Hosts(why) if why.contains("adaptive")), "{refused}");
}

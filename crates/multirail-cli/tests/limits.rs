//! Limits of the rate, which change while a copy runs.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Place, listening};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const LENGTH: usize = 16 << 20;
/// At 64 KiB a second, a copy takes four minutes.
const SLOW: &str = "64k\n";
const WITHIN: Duration = Duration::from_secs(60);

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A served folder `root`, another one `local`, a file in both, and a file `limit` with a slow limit.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    let content: Vec<u8> = (0..LENGTH as u64).map(|i| (i * 31 + i / 251) as u8).collect();
    for folder in ["root", "local"] {
        std::fs::create_dir(place.path(folder)).unwrap();
        std::fs::write(place.path(folder).join("file"), &content).unwrap();
    }
    std::fs::write(place.path("limit"), SLOW).unwrap();
    place
}

fn serve(place: &mut Place, options: &[&str]) -> String {
    let serve = ["--json", "serve", "--listen", "127.0.0.1:0", "--root", "root"];
    let mut server = place.multirail(&[&serve, options].concat()).stdout(Stdio::piped()).spawn().unwrap();
    let address = listening(&mut server);
    place.servers.push(server);
    address
}

/// The copies are slow until the limit is lifted. Then they end soon.
fn check(place: &Place, copies: &[(Vec<String>, PathBuf)]) {
    let start = |args: &Vec<String>| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Running(place.multirail(&args).stdout(Stdio::null()).spawn().unwrap())
    };
    let mut running: Vec<Running> = copies.iter().map(|(args, _)| start(args)).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        for copy in &mut running {
            assert_eq!(copy.0.try_wait().unwrap(), None, "it is limited");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(place.path("limit"), "off").unwrap();
    for (copy, (_, arrived)) in running.iter_mut().zip(copies) {
        let ended = loop {
            match copy.0.try_wait().unwrap() {
                Some(ended) => break ended,
                None => assert!(began.elapsed() < WITHIN, "the new limit holds"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(ended.success());
        assert!(std::fs::read(place.path("root/file")).unwrap() == std::fs::read(arrived).unwrap());
    }
}

fn cp(options: &[&str], from: &str, to: &str) -> Vec<String> {
    [&["cp"], options, &[from, to]].concat().into_iter().map(str::to_owned).collect()
}

/// The limit of a copy holds in both directions.
#[test]
fn a_copy_follows_its_limit() {
    let mut place = place("limit-cp");
    let address = serve(&mut place, &[]);
    let limited = ["--limit-file", "limit"];
    let up = cp(&limited, "local/file", &format!("mr://{address}/up"));
    let down = cp(&limited, &format!("mr://{address}/file"), "local/down");
    check(&place, &[(up, place.path("root/up")), (down, place.path("local/down"))]);
}

/// The limit of a server is that of all its sessions together, in both directions.
#[test]
fn a_server_follows_its_limit() {
    let mut place = place("limit-serve");
    let address = serve(&mut place, &["--limit-file", "limit"]);
    let up = cp(&[], "local/file", &format!("mr://{address}/up"));
    let down = cp(&[], &format!("mr://{address}/file"), "local/down");
    check(&place, &[(up, place.path("root/up")), (down, place.path("local/down"))]);
}

/// In the background, copies arrive in both directions, whichever side asks for it.
#[test]
fn copies_in_the_background_arrive() {
    let mut place = place("background");
    for (server, client) in [(&[][..], &["--background"][..]), (&["--background"], &[])] {
        let address = serve(&mut place, server);
        let up = cp(client, "local/file", &format!("mr://{address}/up"));
        let down = cp(client, &format!("mr://{address}/file"), "local/down");
        for (args, arrived) in [(up, place.path("root/up")), (down, place.path("local/down"))] {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            assert!(place.multirail(&args).stdout(Stdio::null()).status().unwrap().success());
            assert!(std::fs::read(place.path("root/file")).unwrap() == std::fs::read(&arrived).unwrap());
            std::fs::remove_file(arrived).unwrap();
        }
    }
}

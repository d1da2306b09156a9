//! Broadcasts over loopback, several servers in one process: everybody gets it, and what goes wrong on one host stays there.

use multirail::Config;
use multirail::multicast::{Host, Method, Options, broadcast_path};
use multirail::service::{ServeConfig, block_on, serve};
use multirail::session::ListenConfig;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

mod common;
use common::{bounded, pattern, seed, token};

/// A directory that goes with its owner.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("multirail-multicast-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config() -> Config {
    Config { token: Some(token()), ..Config::default() }
}

/// Serves `root` on a thread for as long as the process lives; returns the address.
fn server(root: &Path) -> String {
    let (told, address) = std::sync::mpsc::channel();
    let listen = ListenConfig { address: "127.0.0.1:0".parse().unwrap(), insecure_no_token: false, session: config() };
    let config = ServeConfig { listen, root: root.to_owned() };
    std::thread::spawn(move || {
        let serving = serve(config, |address| told.send(address.to_string()).unwrap());
        block_on(serving)
    });
    address.recv().unwrap()
}

fn options(method: Method, seed: u64) -> Options {
    Options { method, config: config(), seed: Some(seed), wait_for_lost: Duration::ZERO, ..Options::default() }
}

/// Servers in `clusters` clusters in turn, with their folders.
fn servers(temp: &Temp, count: u32, clusters: u32) -> (Vec<Host>, Vec<PathBuf>) {
    let roots: Vec<PathBuf> = (0..count).map(|i| temp.dir(&format!("host{i}"))).collect();
    let host = |(i, root): (usize, &PathBuf)| Host { address: server(root), cluster: i as u32 % clusters };
    (roots.iter().enumerate().map(host).collect(), roots)
}

fn broadcast_file(bytes: usize, hosts: u32, method: Method) {
    let seed = seed(1);
    let temp = Temp::new();
    let source = temp.dir("source").join("data");
    let content = pattern(seed, bytes);
    std::fs::write(&source, &content).unwrap();
    let (hosts, roots) = servers(&temp, hosts, 2);
    let options = options(method, seed);
    let summary =
        common::runtime().block_on(bounded("a broadcast", 60, broadcast_path(&source, &hosts, 0, &options))).unwrap();
    assert!(summary.is_complete(), "{summary:#?}");
    assert_eq!(summary.total_bytes, bytes as u64);
    for root in roots {
        common::assert_same(&std::fs::read(root.join("data")).unwrap(), &content, "a host's copy");
    }
    let crossed: u64 = summary.wan_bytes.iter().flatten().sum();
    let inline = bytes <= 32 << 10;
    assert!(inline || crossed >= bytes as u64, "{:?}", summary.wan_bytes);
}

#[test]
fn a_file_gets_to_all_hosts_by_every_method() {
    for method in Method::ALL.into_iter().filter(|m| !m.needs_bandwidths()) {
        broadcast_file(3_000_001, 5, method);
    }
}

#[test]
fn nothing_and_little_get_there_too() {
    for bytes in [0, 1, 20_000, 40_000] {
        broadcast_file(bytes, 3, Method::default());
    }
}

#[test]
fn a_host_that_is_not_there_is_named_and_the_others_have_everything() {
    let (seed, temp) = (seed(2), Temp::new());
    let source = temp.dir("source").join("data");
    let content = pattern(seed, 2_000_000);
    std::fs::write(&source, &content).unwrap();
    let (mut hosts, roots) = servers(&temp, 4, 2);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    hosts.insert(1, Host { address: nobody.to_string(), cluster: 1 });
    let options = options(Method::default(), seed);
    let summary =
        common::runtime().block_on(bounded("a broadcast", 60, broadcast_path(&source, &hosts, 0, &options))).unwrap();
    assert!(!summary.is_complete());
    for root in roots {
        common::assert_same(&std::fs::read(root.join("data")).unwrap(), &content, "a host's copy");
    }
}

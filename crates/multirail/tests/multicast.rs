//! Broadcasts over loopback with several servers in one process: all hosts complete, and a failure
//! on one host does not affect the others.

use multirail::Config;
use multirail::multicast::{BroadcastHost, Group, Method, Options, Outcome, Receiver, broadcast_path};
use multirail::runtime::block_on;
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail_testing::for_seeds;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

mod common;
use common::{bounded, pattern, token};

/// A directory that is removed when this is dropped.
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
    Config::new().token(token())
}

/// Serves `root` on a thread for as long as the process lives; returns the address.
fn server(root: &Path) -> String {
    let (told, address) = std::sync::mpsc::channel();
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), config());
    let server = Server::new(listen, root.to_owned());
    std::thread::spawn(move || {
        let serving = server.serve(|address| told.send(address.to_string()).unwrap());
        block_on(serving)
    });
    address.recv().unwrap()
}

fn options(method: Method, seed: u64) -> Options {
    Options::new().method(method).config(config()).seed(seed).wait_for_lost(Duration::ZERO)
}

/// Servers in `clusters` clusters in turn, with their folders.
fn servers(temp: &Temp, count: u32, clusters: u32) -> (Vec<BroadcastHost>, Vec<PathBuf>) {
    let roots: Vec<PathBuf> = (0..count).map(|i| temp.dir(&format!("host{i}"))).collect();
    let host = |(i, root): (usize, &PathBuf)| BroadcastHost { address: server(root), cluster: i as u32 % clusters };
    (roots.iter().enumerate().map(host).collect(), roots)
}

fn broadcast_file(bytes: usize, hosts: u32, method: Method, seed: u64) {
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
    let inline = bytes <= 64 << 10;
    assert!(inline || crossed >= bytes as u64, "{:?}", summary.wan_bytes);
}

#[test]
fn a_file_reaches_all_hosts_by_every_method() {
    for_seeds(1, |seed| {
        for method in Method::ALL.iter().copied().filter(|m| !m.needs_bandwidths()) {
            broadcast_file(3_000_001, 5, method, seed);
        }
    });
}

/// Hosts on loopback are alike, so that a guess stays.
#[test]
fn clusters_that_are_a_guess_are_measured_meanwhile() {
    for_seeds(1, |seed| {
        let temp = Temp::new();
        let source = temp.dir("source").join("data");
        let content = pattern(seed, 20_000_000);
        std::fs::write(&source, &content).unwrap();
        let (hosts, roots) = servers(&temp, 5, 2);
        let began = std::time::Instant::now() - Duration::from_secs(5);
        let options = options(Method::Adaptive, seed).find_clusters(true).began(began);
        let broadcast = broadcast_path(&source, &hosts, 0, &options);
        let summary = common::runtime().block_on(bounded("a broadcast", 60, broadcast)).unwrap();
        assert!(summary.is_complete(), "{summary:#?}");
        assert!(summary.elapsed >= Duration::from_secs(5), "times count from the start of the command");
        assert!(summary.hosts.iter().all(|host| host.complete_after >= Some(Duration::from_secs(5))));
        for root in roots {
            common::assert_same(&std::fs::read(root.join("data")).unwrap(), &content, "a host's copy");
        }
    });
}

#[test]
fn empty_and_short_data_arrive() {
    for_seeds(1, |seed| {
        for bytes in [0, 1, 40_000, 80_000] {
            broadcast_file(bytes, 3, Method::default(), seed);
        }
    });
}

#[test]
fn an_absent_host_is_named_and_the_others_complete() {
    for_seeds(1, |seed| {
        let temp = Temp::new();
        let source = temp.dir("source").join("data");
        let content = pattern(seed, 2_000_000);
        std::fs::write(&source, &content).unwrap();
        let (mut hosts, roots) = servers(&temp, 4, 2);
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        hosts.insert(1, BroadcastHost { address: closed.to_string(), cluster: 1 });
        let options = options(Method::default(), seed);
        let summary = common::runtime()
            .block_on(bounded("a broadcast", 60, broadcast_path(&source, &hosts, 0, &options)))
            .unwrap();
        assert!(!summary.is_complete());
        for root in roots {
            common::assert_same(&std::fs::read(root.join("data")).unwrap(), &content, "a host's copy");
        }
    });
}

/// Receivers into memory in the calling runtime, and the data they receive.
async fn receivers(count: u32, clusters: u32, limit_bytes: u64) -> (Vec<BroadcastHost>, Vec<Receiver>) {
    let (mut hosts, mut all) = (Vec::new(), Vec::new());
    for number in 0..count {
        let listen = ListenConfig::new(([127, 0, 0, 1], 0), config());
        let receiver = Receiver::bind(listen, limit_bytes).await.unwrap();
        hosts.push(BroadcastHost { address: receiver.address().to_string(), cluster: number % clusters });
        all.push(receiver);
    }
    (hosts, all)
}

#[test]
fn a_group_receives_one_buffer_after_another() {
    for_seeds(1, |seed| {
        common::runtime().block_on(async {
            let (hosts, mut receivers) = receivers(5, 2, 10_000_000).await;
            let mut group =
                bounded("a group", 30, Group::create(&hosts, 0, &options(Method::default(), seed))).await.unwrap();
            for (round, bytes) in [0, 1, 64 << 10, (64 << 10) + 1, 1_000_000, 7, 3_000_000].into_iter().enumerate() {
                let data = pattern(seed + round as u64, bytes);
                let summary = bounded("a broadcast", 30, group.broadcast(&data)).await.unwrap();
                assert!(summary.is_complete(), "{summary:#?}");
                for receiver in &mut receivers {
                    let got = bounded("a buffer", 10, receiver.next()).await.unwrap();
                    common::assert_same(&got, &data, "a receiver's buffer");
                }
            }
            group.end().await;
        });
    });
}

#[test]
fn a_receiver_without_room_is_left_out() {
    for_seeds(1, |seed| {
        common::runtime().block_on(async {
            let (mut hosts, mut large) = receivers(2, 2, 1_000_000).await;
            let (small_host, _small) = receivers(1, 1, 999_999).await;
            hosts.extend(small_host);
            let mut group =
                bounded("a group", 30, Group::create(&hosts, 0, &options(Method::default(), seed))).await.unwrap();
            let data = pattern(seed, 1_000_000);
            let summary = bounded("a broadcast", 30, group.broadcast(&data)).await.unwrap();
            for (host, receiver) in summary.hosts.iter().zip(&mut large) {
                assert_eq!(host.outcome, Outcome::Complete);
                common::assert_same(&receiver.next().await.unwrap(), &data, "a receiver's buffer");
            }
            assert!(
                matches!(&summary.hosts[2].outcome, Outcome::Failed(why) if why.contains("at most")),
                "{summary:#?}"
            );
            group.end().await;
        });
    });
}

#[test]
fn a_host_with_another_destination_is_left_out() {
    for_seeds(1, |seed| {
        let temp = Temp::new();
        let source = temp.dir("source").join("data");
        let content = pattern(seed, 300_000);
        std::fs::write(&source, &content).unwrap();
        let (hosts, roots) = servers(&temp, 3, 1);
        for root in &roots[1..] {
            std::fs::create_dir(root.join("there")).unwrap();
        }
        let options = options(Method::default(), seed).destination("there/copy");
        let summary = common::runtime()
            .block_on(bounded("a broadcast", 60, broadcast_path(&source, &hosts, 0, &options)))
            .unwrap();
        assert!(matches!(&summary.hosts[0].outcome, Outcome::Failed(why) if why.contains("there")), "{summary:#?}");
        for (host, root) in summary.hosts.iter().zip(&roots).skip(1) {
            assert_eq!(host.outcome, Outcome::Complete);
            common::assert_same(&std::fs::read(root.join("there/copy")).unwrap(), &content, "a host's copy");
        }
    });
}

/// The environment variable that makes this program a server. Its value is the folder to serve.
const SERVE: &str = "MULTIRAIL_TEST_SERVE";

/// Not a test: the process that the tests below kill.
#[test]
fn be_a_server() {
    let Some(root) = std::env::var_os(SERVE) else { return };
    let listen: SocketAddr = std::env::var("MULTIRAIL_TEST_LISTEN").unwrap().parse().unwrap();
    let listen = ListenConfig::new(listen, config());
    let serving = Server::new(listen, root.into()).serve(|address| {
        std::fs::write(std::env::var("MULTIRAIL_TEST_READY").unwrap(), address.to_string()).unwrap();
    });
    block_on(serving).unwrap();
}

/// A server in a separate process.
struct Process(std::process::Child);

impl Process {
    /// Serves `root` at `listen`; returns the address.
    fn start(temp: &Temp, root: &Path, listen: &str) -> (Self, String) {
        let ready = temp.0.join("ready");
        let _ = std::fs::remove_file(&ready);
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["be_a_server", "--exact", "--nocapture"])
            .env(SERVE, root)
            .env("MULTIRAIL_TEST_LISTEN", listen)
            .env("MULTIRAIL_TEST_READY", &ready)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let process = Self(child);
        for _ in 0..3000 {
            match std::fs::read_to_string(&ready) {
                Ok(address) if !address.is_empty() => return (process, address),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("the server did not start");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills a host when it has begun to receive. Returns whether it was incomplete.
fn broadcast_with_death(bytes: usize, seed: u64, comes_back: bool) -> bool {
    let temp = Temp::new();
    let source = temp.dir("source").join("data");
    let content = pattern(seed, bytes);
    std::fs::write(&source, &content).unwrap();
    let (mut hosts, mut roots) = servers(&temp, 4, 2);
    let root = temp.dir("victim");
    let (victim, address) = Process::start(&temp, &root, "127.0.0.1:0");
    hosts.push(BroadcastHost { address: address.clone(), cluster: 1 });
    let wait_for_lost = if comes_back { Duration::from_secs(60) } else { Duration::ZERO };
    let options = options(Method::default(), seed).wait_for_lost(wait_for_lost);
    let began = |root: &Path| {
        let names = std::fs::read_dir(root).unwrap().filter_map(|e| Some(e.ok()?.file_name()));
        names.into_iter().any(|name| name.to_string_lossy().starts_with(".multirail-"))
    };
    let broadcast = {
        let (source, hosts, options) = (source.clone(), hosts.clone(), options.clone());
        std::thread::spawn(move || {
            common::runtime().block_on(bounded("a broadcast", 120, broadcast_path(&source, &hosts, 0, &options)))
        })
    };
    while !began(&root) && !root.join("data").exists() && !broadcast.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(victim);
    let in_time = !root.join("data").exists();
    let _again = comes_back.then(|| Process::start(&temp, &root, &address).0);
    let summary = broadcast.join().unwrap().unwrap();
    if comes_back {
        assert!(summary.is_complete(), "{summary:#?}");
        roots.push(root);
    } else if in_time {
        assert!(matches!(summary.hosts[4].outcome, Outcome::Failed(_)), "{summary:#?}");
    }
    assert!(summary.hosts[..4].iter().all(|h| h.outcome == Outcome::Complete), "{summary:#?}");
    for root in roots {
        common::assert_same(&std::fs::read(root.join("data")).unwrap(), &content, "a host's copy");
    }
    in_time
}

#[test]
fn a_dead_host_is_left_out_and_a_returning_one_completes() {
    for_seeds(1, |seed| {
        for comes_back in [false, true] {
            // On a very fast machine the host may be complete before it dies, and nothing is
            // tested.
            let in_time = [32, 64, 128, 256].into_iter().any(|mib| broadcast_with_death(mib << 20, seed, comes_back));
            assert!(in_time, "the host was never killed in time");
        }
    });
}

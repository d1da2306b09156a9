//! Groups of filters over several hosts. Each host is a process, and some are killed.

use multirail_net::router::Router;
use multirail_net::session::{ListenConfig, Listener};
use multirail_net::{Config, Token, runtime};
use multirail_pipeline::edge::Transport;
use multirail_pipeline::{
    CopyInfo, Failure, Filters, Group, Io, PIPELINE, PIPELINE_EDGE, PipelineHandler, Schedule, StreamOptions,
};
use multirail_testing::proptest_config;
use proptest::prelude::*;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SERVER: &str = "MULTIRAIL_TEST_SERVER";

fn config() -> Config {
    Config::new().token(Token::new(b"what all hosts know"))
}

/// The kinds of filters that the hosts know.
fn filters() -> Filters {
    Filters::none()
        .with("squares", |parameters, _: &CopyInfo| {
            let sleep = Duration::from_micros(parameters["sleep_us"].as_u64().unwrap_or(0));
            Ok(move |io: &mut Io<'_>| -> Result<(), Failure> {
                while let Some(received) = io.read()? {
                    std::thread::sleep(sleep);
                    let number = u64::from_le_bytes(received.body[..8].try_into()?);
                    let mut body = received.body;
                    body[..8].copy_from_slice(&(number * number).to_le_bytes());
                    io.write(0, received.tag, body)?;
                }
                Ok(())
            })
        })
        .with("fails", |_, copy: &CopyInfo| {
            let copy = copy.copy;
            Ok(move |io: &mut Io<'_>| -> Result<(), Failure> {
                while io.read()?.is_some() {
                    if copy == 1 {
                        return Err("the lamp is out".into());
                    }
                }
                Ok(())
            })
        })
}

/// A server, if a test has started this program as one; otherwise nothing. It ends with its stdin.
#[test]
fn server_process() {
    if std::env::var_os(SERVER).is_none() {
        return;
    }
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), config());
    let handler = PipelineHandler::new(filters(), config());
    let edges = Arc::new(handler.edges());
    let router = Router::new().register(PIPELINE_EDGE, edges).register(PIPELINE, Arc::new(handler));
    let served = async {
        let listener = Listener::bind(listen).await?;
        println!("\nlistening {}", listener.address());
        std::io::stdout().flush().unwrap();
        router.serve(listener).await
    };
    runtime::block_on(served).unwrap();
}

/// A host: a process that is killed when this is dropped.
struct HostProcess {
    child: Child,
    _stdin: ChildStdin,
    address: String,
}

impl HostProcess {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server_process", "--nocapture"])
            .env(SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("listening ").map(str::to_owned));
        Self { _stdin: child.stdin.take().unwrap(), child, address: address.expect("it listens") }
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

/// Numbers that are squared on the hosts and collected in this process.
fn squares(
    hosts: &[&HostProcess],
    count: u64,
    body_bytes: usize,
    sleep_us: u64,
    options: StreamOptions,
) -> (Group, Seen) {
    let seen = Seen::default();
    let names = ["h1", "h2", "h3"];
    let mut group = Group::new(config());
    for (name, host) in names.iter().zip(hosts) {
        group.host(name, &host.address);
    }
    group.filter("numbers", move |_| {
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            for number in 0..count {
                let mut body = io.buffer(body_bytes);
                body.resize(body_bytes, 7);
                body[..8].copy_from_slice(&number.to_le_bytes());
                io.write(0, number, body)?;
            }
            Ok(())
        }
    });
    let work = group.filter_of_kind("squares", "squares", json!({ "sleep_us": sleep_us }), &filters());
    work.copies(hosts.len()).on(&names[..hosts.len()]).stateless();
    let collected = seen.clone();
    group.filter("sum", move |_| {
        let seen = collected.clone();
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            while let Some(received) = io.read()? {
                assert_eq!(received.body.len(), body_bytes);
                seen.lock().unwrap().push((received.tag, u64::from_le_bytes(received.body[..8].try_into()?)));
            }
            Ok(())
        }
    });
    group.stream_with("numbers", "squares", options).stream_with("squares", "sum", options);
    (group, seen)
}

fn all_squares(seen: &Seen) -> Vec<(u64, u64)> {
    let mut all = std::mem::take(&mut *seen.lock().unwrap());
    all.sort_unstable();
    all
}

#[test]
fn several_hosts_give_what_one_gives() {
    let hosts = [HostProcess::start(), HostProcess::start(), HostProcess::start()];
    let want: Vec<_> = (0..500).map(|n| (n, n * n)).collect();
    for (copies, schedule) in [(1, Schedule::DemandDriven), (3, Schedule::DemandDriven), (3, Schedule::RoundRobin)] {
        for transport in [None, Some(Transport::Tcp)] {
            let options = StreamOptions::default().schedule(schedule).transport(transport);
            let hosts: Vec<&HostProcess> = hosts.iter().take(copies).collect();
            let (group, seen) = squares(&hosts, 500, 3000, 0, options);
            let mut running = group.start().unwrap();
            let units: Vec<u32> = (0..3).map(|_| running.begin(b"")).collect();
            units.into_iter().for_each(|unit| running.wait(unit).unwrap());
            let three: Vec<_> = want.iter().flat_map(|w| [*w; 3]).collect();
            assert_eq!(all_squares(&seen), three, "{copies} copies, {schedule}, {transport:?}");
        }
    }
}

#[test]
fn a_failure_on_another_host_names_the_host() {
    let hosts = [HostProcess::start(), HostProcess::start()];
    let mut group = Group::new(config());
    group.host("h1", &hosts[0].address).host("h2", &hosts[1].address);
    group.filter("source", |_| {
        |io: &mut Io<'_>| -> Result<(), Failure> { (0..10_000).try_for_each(|i| io.write(0, i, vec![0; 100])) }
    });
    group.filter_of_kind("lamp", "fails", json!(null), &filters()).copies(2).on(&["h1", "h2"]);
    group.stream("source", "lamp");
    let mut running = group.start().unwrap();
    for unit in 1..4 {
        let told = running.run(b"").unwrap_err().to_string();
        let want = format!("unit of work {unit}: copy 1 of filter \"lamp\" on host h2 failed: the lamp is out");
        assert_eq!(told, want);
    }
    let mut group = Group::new(config());
    group.host("h1", &hosts[0].address);
    group.filter_of_kind("x", "unheard of", json!(null), &filters()).on(&["h1"]);
    let told = group.start().unwrap_err().to_string();
    assert!(
        told.contains("host h1") && told.contains("\"unheard of\" is unknown; there are: fails, squares"),
        "{told}"
    );
}

#[test]
fn a_server_refuses_buffers_and_copies_beyond_its_limits() {
    let host = HostProcess::start();
    let start = |limit_bytes: u64, copies: usize| {
        let mut group = Group::new(config());
        group.host("h1", &host.address).limit_bytes(limit_bytes);
        for name in ["one", "two", "three"] {
            group.filter_of_kind(name, "squares", json!(null), &filters()).copies(copies).on(&["h1"]);
        }
        group.stream("one", "two").stream("two", "three");
        group.start().map(drop).map_err(|e| e.to_string())
    };
    start(1 << 20, 2).unwrap();
    let told = start(1 << 46, 1).unwrap_err();
    assert!(told.contains("host h1") && told.contains("buffers of 70368744177664 bytes are too long"), "{told}");
    let told = start(1 << 20, 90).unwrap_err();
    assert!(told.contains("host h1") && told.contains("270 copies are too many"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..proptest_config(20) })]

    /// Each square arrives once, or the unit of work fails and the error names the host. The
    /// remaining hosts do the next unit.
    #[test]
    fn nothing_is_lost_or_doubled_when_a_host_is_killed(after_us in 0u64..60_000, victim in 0usize..3, big: bool) {
        let mut hosts = vec![HostProcess::start(), HostProcess::start(), HostProcess::start()];
        let body_bytes = if big { 200_000 } else { 64 };
        let all: Vec<&HostProcess> = hosts.iter().collect();
        let (mut group, seen) = squares(&all, 300, body_bytes, 300, StreamOptions::default());
        group.host_timeout(Duration::from_millis(500));
        let mut running = group.start().unwrap();
        let unit = running.begin(b"");
        std::thread::sleep(Duration::from_micros(after_us));
        hosts.remove(victim);
        let ended = running.wait_for(unit, Duration::from_secs(30)).expect("nothing hangs");
        let want: Vec<_> = (0..300).map(|n| (n, n * n)).collect();
        match ended {
            Ok(()) => prop_assert_eq!(all_squares(&seen), want.clone()),
            Err(error) => {
                let name = format!("h{}", victim + 1);
                prop_assert!(error.to_string().contains(&name), "{}", error);
                eprintln!("failed cleanly: {error}");
            }
        }
        seen.lock().unwrap().clear();
        let unit = running.begin(b"");
        running.wait_for(unit, Duration::from_secs(30)).expect("nothing hangs").unwrap();
        prop_assert_eq!(all_squares(&seen), want);
    }
}

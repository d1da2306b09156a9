//! Random sequences of messages from a hostile coordinator: groups with random parts, in any order.

use super::PipelineHandler;
use super::layout::{HostEntry, Layout, RunId};
use super::messages::{FilterKind, PIPELINE, PIPELINE_EDGE, ToHost};
use crate::filters::Filters;
use crate::graph::Group;
use crate::runtime::{Failure, Io};
use multirail_net::budget::MemoryBudget;
use multirail_net::router::Router;
use multirail_net::session::{ListenConfig, Listener};
use multirail_net::{Config, Session, request, runtime};
use multirail_proto::pipeline::{FilterNode, LogicalStream, Transport};
use multirail_proto::pipeline::{Graph, Schedule};
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// All threads of a sequence end within this time after its session. In tests, a host waits 2 s for edges.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Threads of this process that copies and joins of groups use.
fn threads() -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(entry.ok()?.path().join("comm")).ok().map(|name| name.trim().to_owned())
    };
    let all = std::fs::read_dir("/proc/self/task").unwrap().filter_map(name);
    all.filter(|name| name == "join" || name.starts_with("filter")).collect()
}

fn kind(rng: &mut Rng) -> FilterKind {
    let (kind, parameters) = match rng.below(16) {
        0 => ("generate", json!({ "bytes": 1u64 << rng.below(63) })),
        1 => ("generate", json!({ "bytes": 1u64 << rng.below(63), "chunk_bytes": 1u64 << rng.below(63) })),
        2 => ("compute", json!({ "ns_per_byte": rng.next_u64() as i64 })),
        3 => ("read", json!({ "path": "../../etc/passwd" })),
        4 => ("write", json!({ "path": "../x" })),
        5 => ("program", json!({ "command": ["id"] })),
        6 => ("unheard of", json!(null)),
        _ => (["pass", "discard", "generate"][rng.below(3) as usize], json!({ "bytes": 100_000 })),
    };
    FilterKind { kind: kind.to_owned(), parameters: parameters.to_string() }
}

fn layout(rng: &mut Rng) -> Option<(Layout, Vec<FilterKind>)> {
    let count = 1 + rng.below(3) as usize;
    let hosts = 1 + (rng.below(8) == 0) as u32;
    let filter = |number| FilterNode {
        name: format!("filter{number}"),
        hosts: (0..1 + rng.below(3)).map(|_| if rng.below(6) > 0 { 1 } else { rng.below(4) as u32 }).collect(),
        stateless: rng.below(2) == 0,
    };
    let filters: Vec<_> = (0..count).map(filter).collect();
    let stream =
        |from| LogicalStream { from, to: from + 1, schedule: Schedule::DemandDriven, window: 1 << rng.below(17) };
    let streams: Vec<_> = (0..count - 1).map(stream).collect();
    let transport = |_| [None, Some(Transport::Tcp)][rng.below(2) as usize];
    let mut transports: Vec<_> = streams.iter().map(transport).collect();
    if rng.below(16) == 0 {
        transports.push(None);
    }
    let layout = Layout {
        run: RunId([rng.below(3) as u8; 16]),
        transports,
        graph: Graph::new(filters, streams).ok()?,
        // Nothing listens on this port.
        hosts: (0..=hosts).map(|n| HostEntry { name: format!("h{n}"), address: "127.0.0.1:1".to_owned() }).collect(),
        chunk_bytes: 1 << if rng.below(8) == 0 { rng.below(64) } else { rng.below(20) },
        limit_bytes: if rng.below(8) == 0 { 1 << rng.below(64) } else { 1 << 20 },
        host_timeout: Duration::from_millis(rng.below(2000)),
    };
    let kinds = (0..count as u64 + rng.below(16) / 15).map(|_| kind(rng)).collect();
    Some((layout, kinds))
}

fn message(rng: &mut Rng, begins: bool) -> Option<Vec<u8>> {
    let message = match if begins { 7 } else { rng.below(8) } {
        0 => return Some((0..rng.below(40)).map(|_| rng.below(256) as u8).collect()),
        1..4 => ToHost::Join,
        4 => ToHost::Abort { unit: rng.below(4) as u32 },
        5.. if !begins => ToHost::Unit { number: rng.below(4) as u32, query: vec![7; rng.below(100) as usize] },
        _ => {
            let (layout, kinds) = layout(rng)?;
            ToHost::Prepare { layout, me: if rng.below(8) == 0 { rng.below(3) as u32 } else { 1 }, kinds }
        }
    };
    postcard::to_allocvec(&message).ok()
}

/// One session of a hostile coordinator.
async fn attack(address: &str, seed: u64) {
    let rng = &mut Rng::new(seed);
    let Ok(mut session) = Session::connect(address, Config::new()).await else { panic!("the server is gone") };
    request::send_request(&mut session, PIPELINE, &()).await.unwrap();
    for step in 0..2 + rng.below(10) {
        let begins = step == 0 && rng.below(16) > 0 || rng.below(20) == 0;
        let Some(bytes) = message(rng, begins) else { continue };
        if session.send(&bytes).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(rng.below(20))).await;
    }
    if rng.below(2) == 0 {
        let _ = session.close().await;
    }
}

/// Whatever a coordinator sends, the server goes on, every thread of its group ends, and the next group
/// works.
#[test]
fn any_sequence_of_messages_leaves_the_server_as_it_was() {
    let root = std::env::temp_dir().join(format!("multirail-sequences-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let served = root.clone();
    std::thread::spawn(move || {
        let handler = PipelineHandler::new(Filters::built_in(&served), Config::new());
        let edges = std::sync::Arc::new(handler.edges());
        let router = Router::new().register(PIPELINE_EDGE, edges).register(PIPELINE, std::sync::Arc::new(handler));
        runtime::block_on(async {
            let config = Config::new().give_up_after(Duration::from_secs(1));
            let listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), config)).await.unwrap();
            tell.send(listener.address().to_string()).unwrap();
            router.serve(listener).await
        })
    });
    let address = told.recv().unwrap();
    for_seeds(60, |seed| {
        let attacked = async {
            attack(&address, seed).await;
            Ok(())
        };
        runtime::block_on(attacked).unwrap();
    });
    let ended = Instant::now();
    while !threads().is_empty() {
        assert!(ended.elapsed() < TIME_LIMIT, "these threads do not end: {:?}", threads());
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut group = Group::new(Config::new());
    group.host("h1", &address);
    let generate = json!({ "bytes": 1_000_000, "chunk_bytes": 1000 });
    group.filter_of_kind("generate", "generate", generate, &Filters::built_in(&root)).on(&["h1"]);
    let (count, counted) = std::sync::mpsc::channel();
    group.filter("count", move |_| {
        let count = count.clone();
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            while let Some(received) = io.read()? {
                count.send(received.body.len())?;
            }
            Ok(())
        }
    });
    group.stream("generate", "count");
    group.start().unwrap().run(b"").unwrap();
    assert_eq!(counted.try_iter().sum::<usize>(), 1_000_000);
    std::fs::remove_dir(&root).expect("no filter has written anything");
}

/// Queries that wait for their unit of work use the server's budget; a coordinator that exceeds it loses
/// its session.
#[test]
fn waiting_queries_are_limited() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // No unit of work ends while the coordinator sends queries, however slowly it does.
        let filters = Filters::none().with("sleeps", |_, _| {
            Ok(|_: &mut Io<'_>| -> Result<(), Failure> {
                while !IS_OVER.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(())
            })
        });
        let handler = PipelineHandler::new(filters, Config::new());
        let handler = handler.memory_budget(MemoryBudget::new(8 << 20));
        let router = Router::new().register(PIPELINE, std::sync::Arc::new(handler));
        runtime::block_on(async {
            let listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new())).await.unwrap();
            tell.send(listener.address().to_string()).unwrap();
            router.serve(listener).await
        })
    });
    let address = told.recv().unwrap();
    let attack = async {
        let mut session = Session::connect(&address, Config::new()).await?;
        request::send_request(&mut session, PIPELINE, &()).await?;
        let filter = FilterNode { name: "sleeps".to_owned(), hosts: vec![1], stateless: false };
        let layout = Layout {
            run: RunId([7; 16]),
            graph: Graph::new(vec![filter], Vec::new()).unwrap(),
            hosts: ["a", "b"].map(|name| HostEntry { name: name.to_owned(), address: String::new() }).to_vec(),
            transports: Vec::new(),
            chunk_bytes: 1 << 10,
            limit_bytes: 1 << 20,
            host_timeout: Duration::from_secs(1),
        };
        let kinds = vec![FilterKind { kind: "sleeps".to_owned(), parameters: "null".to_owned() }];
        let send = async |session: &mut Session, message: &ToHost| {
            session.send(&postcard::to_allocvec(message).unwrap()).await
        };
        send(&mut session, &ToHost::Prepare { layout, me: 1, kinds }).await?;
        send(&mut session, &ToHost::Join).await?;
        for number in 0..100 {
            send(&mut session, &ToHost::Unit { number, query: vec![7; 1 << 20] }).await?;
        }
        Ok(())
    };
    let attacked = runtime::block_on(attack);
    IS_OVER.store(true, Ordering::Relaxed);
    assert!(attacked.is_err(), "queries beyond the budget end the session");
}

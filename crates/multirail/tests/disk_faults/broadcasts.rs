//! `bcast --fsync` to a host whose power is cut.

use super::copies::{Case, Done, Served, TIMEOUT, TO, config, names};
use super::filesystem::Mounted;
use super::tree::{Entry, Wanted};
use multirail::multicast::{BroadcastHost, Options, broadcast_path};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail_testing::for_seeds;
use std::fs;
use std::time::{Duration, Instant};

/// How many random trees are sent.
const SEEDS: usize = 6;
/// The source waits so long for a host whose disk is off.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);

/// Starts a server for the disk, and sends the tree to it. Returns whether the server has everything.
fn send(case: &Case<'_>, served: &Served, done: &mut Done) -> Result<(), String> {
    done.copies += 1;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (told, address) = tokio::sync::oneshot::channel();
        let server = Server::new(ListenConfig::new(([127, 0, 0, 1], 0), config()), served.root.clone());
        let serving = server.serve(|address| told.send(address).unwrap());
        let sending = async {
            let hosts = [BroadcastHost::new(address.await.unwrap().to_string(), 0)];
            let options = Options::new().config(config()).recursive(true).sync(true).destination(TO);
            let options = options.wait_for_lost(Duration::ZERO).give_up_after(GIVE_UP_AFTER);
            let summary = broadcast_path(&case.source, &hosts, 0, &options).await.map_err(|error| error.to_string())?;
            if summary.is_complete() { Ok(()) } else { Err(format!("{summary:?}")) }
        };
        tokio::select! {
            served = serving => panic!("the server has ended: {served:?}"),
            sent = tokio::time::timeout(TIMEOUT, sending) => sent.expect("the broadcast comes to an end"),
        }
    })
}

/// Sends until it is done, after a broadcast that was disturbed. Then the power is cut.
fn finish(case: &Case<'_>, served: &Served, done: &mut Done) {
    if let Err(why) = send(case, served, done) {
        panic!("{why}\n{}", served.trace());
    }
    // The session of the disturbed broadcast may need a moment to end.
    let begun = Instant::now();
    let left = || case.compare(served, Wanted::Whole).is_err();
    while left() && begun.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(10));
    }
    case.check(served, Wanted::Whole, served, "after the same broadcast was run again");
    // The power was cut before the folder of the broadcast existed: what it made at first stays for a day.
    let mut left = names(&served.root);
    left.retain(|name| !name.ends_with(".multirail-part"));
    assert_eq!(left, [TO], "left over\n{}", served.trace());
    let after = case.cut(served, done);
    case.check(&after, Wanted::Whole, served, "after the same broadcast was run again, and a power cut");
}

/// What `--fsync` promises for a host of a broadcast: what is complete is safe, and at any power cut, a file
/// has its old or its new content. The same broadcast run again completes.
#[test]
fn broadcasts_with_fsync_survive_power_cuts() {
    let Some(mounted) = Mounted::new() else { return };
    let mut done = Done::default();
    for_seeds(SEEDS, |seed| {
        let mut case = Case::new(&mounted, "broadcast", seed);
        // Symbolic links are not sent.
        let links: Vec<_> = case.new.extract_if(.., |_, entry| matches!(entry, Entry::Symlink { .. })).collect();
        for (path, _) in links {
            fs::remove_file(case.path(&path)).unwrap();
        }
        let served = case.served();
        if let Err(why) = send(&case, &served, &mut done) {
            panic!("{why}\n{}", served.trace());
        }
        let changes = served.disk.lock().asked;
        case.check(&served, Wanted::Whole, &served, "after a broadcast");
        let after = case.cut(&served, &mut done);
        case.check(&after, Wanted::Whole, &served, "after a broadcast and a power cut");

        let served = case.served();
        served.disk.cut_at(1 + case.rng.below(changes));
        let wanted = if send(&case, &served, &mut done).is_ok() { Wanted::Whole } else { Wanted::OldOrNew };
        let after = case.cut(&served, &mut done);
        case.check(&after, wanted, &served, "after a power cut");
        finish(&case, &after, &mut done);
        mounted.clear();
    });
    println!("{done:?}");
}

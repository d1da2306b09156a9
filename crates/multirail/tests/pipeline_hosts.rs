//! A pipeline over four hosts of a lab, one of which becomes silent.
//!
//! Where no lab can be made (see `multirail-lab`), the test is skipped.

mod common;

use common::{runtime, token};
use multirail::Config;
use multirail::pipeline::edge::Transport;
use multirail::pipeline::{CopyInfo, Failure, Filters, Group, Io, StreamOptions};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail_lab::{Lab, LinkState, Ports};
use multirail_testing::{Requirement, skip};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const NUMBERS: u64 = 2000;

/// The kinds of filters that the hosts know: a source of numbers, and a slow filter that squares
/// them.
fn filters() -> Filters {
    Filters::none()
        .with("numbers", |_, _: &CopyInfo| {
            Ok(|io: &mut Io<'_>| -> Result<(), Failure> {
                (0..NUMBERS).try_for_each(|n| io.write(0, n, n.to_le_bytes().to_vec()))
            })
        })
        .with("squares", |_, _: &CopyInfo| {
            Ok(|io: &mut Io<'_>| -> Result<(), Failure> {
                while let Some(received) = io.read()? {
                    std::thread::sleep(Duration::from_millis(1));
                    let number = u64::from_le_bytes(received.body[..8].try_into()?);
                    io.write(0, received.tag, (number * number).to_le_bytes().to_vec())?;
                }
                Ok(())
            })
        })
}

/// Host b produces, c and d compute, a collects. When d becomes silent, b replaces d's copy after
/// the time that the group was given, although b learns of the group from a only.
#[test]
fn a_silent_host_is_replaced_on_all_hosts_after_the_time_of_the_group() {
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    for transport in [Transport::Striped, Transport::Tcp] {
        let topology = Ports::new().topology(&["a", "b", "c", "d"], &[None]).expect("a topology");
        let lab = Lab::temporary(&topology).expect("a lab");
        let took = play(&lab, transport);
        println!("{transport}: {took:?} after the cut");
        assert!(took < Duration::from_secs(12), "{transport}: the copy was replaced after {took:?}");
    }
}

/// Runs one unit of work and cuts host d from the network; returns how long the unit took after
/// that.
fn play(lab: &Lab, transport: Transport) -> Duration {
    let config = Config::new().token(token());
    let (stop, stopped) = tokio::sync::watch::channel(());
    std::thread::scope(|scope| {
        let mut addresses = Vec::new();
        for host in ["b", "c", "d"] {
            let (sender, port) = mpsc::channel();
            let (config, mut stopped) = (config.clone(), stopped.clone());
            scope.spawn(move || {
                let served = || {
                    let listen = ListenConfig::new(([0, 0, 0, 0], 0), config);
                    let server = Server::new(listen, std::env::temp_dir()).with_filters(filters());
                    runtime().block_on(async {
                        tokio::select! {
                            ended = server.serve(|address| sender.send(address.port()).expect("the test waits")) => ended,
                            _ = stopped.changed() => Ok(()),
                        }
                    })
                };
                lab.run_in(host, served).expect("a host").expect("it serves");
            });
            let port = port.recv_timeout(Duration::from_secs(10)).expect("a server");
            addresses.push((host, format!("{}:{port}", lab.address(host, 0).expect("an address"))));
        }
        let run = || {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let mut group = Group::new(config.clone());
            group.host_timeout(Duration::from_secs(2));
            for (name, address) in &addresses {
                group.host(name, address);
            }
            group.filter_of_kind("numbers", "numbers", json!(null), &filters()).on(&["b"]);
            group.filter_of_kind("squares", "squares", json!(null), &filters()).copies(2).on(&["c", "d"]).stateless();
            let (collected, counter) = (seen.clone(), Arc::new(AtomicU64::new(0)));
            let counted = counter.clone();
            group.filter("sum", move |_| {
                let (seen, counter) = (collected.clone(), counted.clone());
                move |io: &mut Io<'_>| -> Result<(), Failure> {
                    while let Some(received) = io.read()? {
                        seen.lock().unwrap().push((received.tag, u64::from_le_bytes(received.body[..8].try_into()?)));
                        counter.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(())
                }
            });
            let options = || StreamOptions::default().transport(Some(transport));
            group.stream_with("numbers", "squares", options()).stream_with("squares", "sum", options());
            let mut running = group.start().expect("a running group");
            let unit = running.begin(b"");
            let begun = Instant::now();
            while counter.load(Ordering::SeqCst) < NUMBERS / 10 {
                assert!(begun.elapsed() < Duration::from_secs(20), "no numbers arrive");
                std::thread::sleep(Duration::from_millis(2));
            }
            lab.set_port_link("d", 0, LinkState::Cut).expect("a cut");
            let cut_at = Instant::now();
            running.wait_for(unit, Duration::from_secs(60)).expect("it ends").expect("c does all of it");
            let took = cut_at.elapsed();
            let mut all = std::mem::take(&mut *seen.lock().unwrap());
            all.sort_unstable();
            assert_eq!(all, (0..NUMBERS).map(|n| (n, n * n)).collect::<Vec<_>>(), "each square once");
            took
        };
        let took = lab.run_in("a", run).expect("host a");
        drop(stop);
        took
    })
}

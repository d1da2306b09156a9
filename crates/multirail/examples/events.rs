//! What a change of the network in the middle of a 64 MiB message costs, held against the ideal in
//! the same run.
//!
//! Two rails of 100 Mbit/s in a lab of its own. The ideal is worked out from the undisturbed
//! message of the same run: it carries what both rails carry until the event, and what is left of
//! them afterwards.
//!
//! `cargo run --release -p multirail --example events [REPEATS]`, as root; one JSON object a line.

use multirail::session::{Accepted, ListenConfig, Listener};
use multirail::{Config, Session, runtime};
use multirail_lab::{Lab, Rate, Topology};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MESSAGE_BYTES: usize = 64 << 20;
const RATE: &str = "100mbit";
/// When the event happens: about the middle of a message that takes 2.8 s undisturbed.
const EVENT_AFTER: Duration = Duration::from_millis(1400);

fn main() {
    if let Err(why) = Lab::supported() {
        println!("skipped: {why}");
        return;
    }
    let repeats: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    for _ in 0..repeats {
        let lab = Lab::temporary(&Topology::simple(&["a", "b"], &[RATE, RATE]).expect("a topology")).expect("a lab");
        run(&lab);
    }
}

fn run(lab: &Lab) {
    let address = format!("{}:7717", lab.address("b", 0).expect("an address"));
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| lab.run_in("b", move || serve(&stopped)).expect("the server's host"));
        std::thread::sleep(Duration::from_millis(200));
        lab.run_in("a", || runtime::block_on(measure(lab, &address))).expect("the client's host").expect("a session");
        drop(stop);
    });
}

/// Receives messages until the client is done.
fn serve(stopped: &mpsc::Receiver<()>) {
    let served = runtime::block_on(async {
        let listen = ListenConfig::new(([0, 0, 0, 0], 7717), Config::default());
        let mut listener = Listener::bind(listen).await?;
        let Accepted::Session(new) = listener.accept().await? else { return Ok(()) };
        let mut session = new.start();
        let mut buffer = vec![0; MESSAGE_BYTES];
        while session.recv(&mut buffer).await.is_ok() {}
        Ok(())
    });
    served.expect("the server");
    let _ = stopped.recv();
}

async fn measure(lab: &Lab, address: &str) -> multirail::Result<()> {
    let mut session = Session::connect(address, Config::default()).await?;
    let message = vec![7; MESSAGE_BYTES];
    session.send(&message[..8 << 20]).await?;
    let undisturbed = timed(&mut session, &message).await?;
    let bytes_s = MESSAGE_BYTES as f64 / undisturbed;

    let set = |rate: &str| lab.set_rate(1, Some(rate.parse::<Rate>().expect("a rate"))).expect("setting a rate");
    let (taken, at) = with_event(&mut session, &message, lab, |_| set("10mbit")).await?;
    report("rate falls to a tenth", taken, at, ideal(bytes_s, at, 0.55), 0.0);
    set(RATE);
    session.send(&message[..16 << 20]).await?;

    for (name, cut) in [("rail is cut silently", true), ("rail loses its carrier", false)] {
        let (taken, at) = with_event(&mut session, &message, lab, |lab| {
            if cut { lab.set_cut(1) } else { lab.set_down(1) }.expect("taking a rail away")
        })
        .await?;
        report(name, taken, at, ideal(bytes_s, at, 0.5), multirail::session::DEAD_AFTER.as_secs_f64());
        lab.set_up(1).expect("bringing a rail back");
        let back = used_again(&mut session, &message[..1 << 20]).await?;
        println!(
            "{}",
            format_args!("{{\"event\":\"used again after: {name}\",\"seconds\":{back:.3},\"demanded_s\":5}}")
        );
    }
    session.close().await
}

async fn timed(session: &mut Session, message: &[u8]) -> multirail::Result<f64> {
    let start = Instant::now();
    session.send(message).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Sends the message and starts `event` halfway. Returns the duration of the message and the time
/// when the event ended.
async fn with_event(
    session: &mut Session,
    message: &[u8],
    lab: &Lab,
    event: impl FnOnce(&Lab),
) -> multirail::Result<(f64, f64)> {
    let start = Instant::now();
    let happening = async {
        tokio::time::sleep(EVENT_AFTER).await;
        event(lab);
        start.elapsed().as_secs_f64()
    };
    let (sent, at) = tokio::join!(session.send(message), happening);
    sent?;
    Ok((start.elapsed().as_secs_f64(), at))
}

/// Seconds until the message is out if `left` of the undisturbed rate remains after `at`.
fn ideal(bytes_s: f64, at: f64, left: f64) -> f64 {
    at + (MESSAGE_BYTES as f64 - bytes_s * at) / (bytes_s * left)
}

/// Keeps both rails busy until rail 1 carries bytes again; how long that took.
async fn used_again(session: &mut Session, message: &[u8]) -> multirail::Result<f64> {
    let carried = |session: &Session| {
        session.rails().iter().filter(|r| r.rail == 1 && r.channels > 0).map(|r| r.sent_bytes).sum::<u64>()
    };
    let start = Instant::now();
    let before = carried(session);
    while start.elapsed() < Duration::from_secs(30) {
        session.send(message).await?;
        if carried(session) > before {
            return Ok(start.elapsed().as_secs_f64());
        }
    }
    Ok(f64::INFINITY)
}

fn report(event: &str, taken: f64, at: f64, ideal: f64, detection: f64) {
    let over = (taken / ideal - 1.0) * 100.0;
    println!(
        "{{\"event\":\"{event}\",\"at_s\":{at:.3},\"seconds\":{taken:.3},\"ideal_s\":{ideal:.3},\"over_percent\":{over:.2},\"detection_s\":{detection}}}"
    );
}

//! The server's side of the ping-pong.

use multirail_net::probe::MAX_MESSAGE_BYTES;
use multirail_net::{Error, Result, Session, Strategy};

/// CPU time of this process so far, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Sends back `rounds` messages of at most `message_bytes`.
pub(super) async fn echo(
    session: &mut Session,
    message_bytes: u64,
    rounds: u32,
    strategy: Strategy,
    fragment_bytes: u32,
) -> Result<()> {
    if message_bytes > MAX_MESSAGE_BYTES || fragment_bytes == 0 {
        return Err(Error::Protocol(format!(
            "a request for an echo of {message_bytes} bytes in fragments of {fragment_bytes}"
        )));
    }
    session.set_strategy(strategy, fragment_bytes);
    let mut buffer = vec![0; message_bytes as usize];
    for _ in 0..rounds {
        let n = session.recv(&mut buffer).await?;
        session.send(&buffer[..n]).await?;
    }
    Ok(())
}

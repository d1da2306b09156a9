//! Servers that a command starts on other hosts over the user's own ssh.
//!
//! Secrets and addresses go over stdin and stdout of ssh, never over a command line or the
//! environment. A server ends at the end of its stdin, however the ssh session ends.
//!
//! - [`session`]: the command of `--ssh`, and one session of it.
//! - [`servers`]: a server on each of several hosts, for `bcast` and `pipeline`.
//! - [`copy`]: a server for one copy. What both sides say is in [`dialogue`], what the shell of the
//!   other host runs in [`script`].

pub mod copy;
pub mod dialogue;
mod reach;
mod script;
mod servers;
mod session;

pub use servers::{Purpose, Servers, SshArgs};

use anyhow::Context;
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The longest line that is read from a session.
const MAX_LINE_BYTES: u64 = 4096;

/// The text quoted as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Locks a mutex, also after a thread has panicked while it held the lock. The values here are
/// valid at all times.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 256 random bits in hexadecimal digits.
fn random_secret() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut bytes).context("/dev/urandom")?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ() {
        let (one, other) = (random_secret().unwrap(), random_secret().unwrap());
        assert!(one != other && one.len() == 64);
    }

    #[test]
    fn quotes_are_quoted() {
        assert_eq!(quoted("a b'$c"), "'a b'\\''$c'");
    }
}

//! What a service manager does with a server: passes its socket, learns its state, and asks it to
//! reload or to end.
//!
//! The interfaces are those of systemd (`sd_listen_fds(3)`, `sd_notify(3)`), which other managers have
//! as well. Without a manager, only signals matter.

use anyhow::{Context, ensure};
use multirail::stop::Stop;
use sd_notify::NotifyState;
use std::io::IsTerminal;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The socket that the manager passes, if it does.
///
/// It must be called once, before anything else opens files.
pub fn passed_listener() -> anyhow::Result<Option<TcpListener>> {
    let mut passed = sd_notify::listen_fds().context("LISTEN_FDS")?;
    let Some(fd) = passed.next() else { return Ok(None) };
    ensure!(passed.next().is_none(), "the service manager passes several sockets, and one is needed");
    // SAFETY: the manager says in the environment that it has opened this file for this process, and
    // nothing else here uses it.
    let listener = unsafe { TcpListener::from_raw_fd(fd) };
    ensure!(is_listening(&listener), "the service manager passes no listening TCP socket (ListenStream=)");
    listener.set_nonblocking(true).context("the socket of the service manager")?;
    Ok(Some(listener))
}

fn is_listening(socket: &TcpListener) -> bool {
    let (mut listening, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
    let fd = socket.as_raw_fd();
    // SAFETY: both pointers are valid for their types, and the kernel writes at most `length` bytes.
    let asked = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut listening).cast(), &mut length)
    };
    asked == 0 && listening != 0 && socket.local_addr().is_ok()
}

/// Tells the manager something. Without one, it does nothing.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// Tells the manager that clients can connect.
pub fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Tells the manager that the server ends.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// What is done on SIGHUP: each part by its name.
type Parts = Vec<(&'static str, Box<dyn Fn() -> anyhow::Result<()> + Send>)>;

/// What a server loads again on SIGHUP. A part that cannot be loaded stays as it was.
#[derive(Default)]
pub struct Reload(Parts);

impl Reload {
    pub fn add(&mut self, what: &'static str, load: impl Fn() -> anyhow::Result<()> + Send + 'static) {
        self.0.push((what, Box::new(load)));
    }

    fn run(&self) {
        let now = NotifyState::monotonic_usec_now();
        match now {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "cannot read the clock"),
        }
        for (what, load) in &self.0 {
            match load() {
                Ok(()) => tracing::info!(what, "loaded again"),
                Err(error) => tracing::error!(what, error = format!("{error:#}"), "cannot be loaded again"),
            }
        }
        notify(&[NotifyState::Ready]);
    }
}

/// Handles signals and the manager's watchdog.
pub struct Attendant {
    end: [Signal; 2],
    hang_up: Signal,
    reload: Reload,
    stop: Stop,
    drain: Duration,
}

impl Attendant {
    /// Handles signals from now on. It needs a runtime.
    pub fn new(reload: Reload, stop: Stop, drain: Duration) -> anyhow::Result<Self> {
        let handle = |kind| signal(kind).context("handling signals");
        Ok(Self {
            end: [handle(SignalKind::terminate())?, handle(SignalKind::interrupt())?],
            hang_up: handle(SignalKind::hangup())?,
            reload,
            stop,
            drain,
        })
    }

    /// Attends for ever. SIGTERM and SIGINT end the server: the first one lets requests finish for
    /// the given time, the second one ends them, and the third one ends the process at once. SIGHUP
    /// reloads; the end of a terminal ends the server.
    pub async fn attend(mut self) -> ! {
        let watchdog = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
        let mut alive = watchdog.map(|limit| tokio::time::interval(limit / 2));
        let has_terminal = std::io::stdin().is_terminal();
        let [terminate, interrupt] = &mut self.end;
        let mut asked = 0;
        loop {
            let ends = tokio::select! {
                _ = terminate.recv() => true,
                _ = interrupt.recv() => true,
                _ = self.hang_up.recv() => has_terminal,
                () = next(&mut alive) => {
                    notify(&[NotifyState::Watchdog]);
                    continue;
                }
            };
            if !ends {
                self.reload.run();
                continue;
            }
            asked += 1;
            match asked {
                1 => {
                    notify_stopping();
                    self.stop.stop(self.drain);
                }
                2 => self.stop.stop(Duration::ZERO),
                _ => std::process::exit(1),
            }
        }
    }
}

async fn next(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

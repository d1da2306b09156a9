//! Accepting connections: which of them get a handshake.

use super::log_limit::LogLimit;
use crate::handshake::{self, GREETING_BYTES};
use crate::sync::lock;
use crate::traffic::Refused;
use multirail_proto::admission::{Gate, Source, Ticket};
use multirail_proto::session::Time;
use socket2::SockRef;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

/// Connections that are accepted before other tasks run again.
const BATCH: usize = 64;
/// Limit of connections that wait for their greeting because their source opens too many. They hold
/// a file each, and no memory of a task.
const MAX_LATE: usize = 256;
/// A client sends its greeting as soon as the connection is open, so the greeting arrives at once.
const LATE_FOR: Duration = Duration::from_millis(50);
/// How often the late ones are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often refused connections are logged, all in one line.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Accepts connections.
///
/// A connection of a source that opens too many is closed before anything is allocated for it, unless
/// it sends a greeting within [`LATE_FOR`]. The kernel could wait for the greeting by itself
/// (`TCP_DEFER_ACCEPT`). It would do so for every source, and it answers a connection again and again
/// that sends none.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: AsyncFd<TcpListener>,
    gate: Arc<GateKeeper>,
    late: VecDeque<Late>,
    max_late: usize,
    refused: u64,
    logged_at: Option<Instant>,
    /// Calls that failed to accept a connection.
    failed: LogLimit,
}

/// A connection whose source opens too many.
#[derive(Debug)]
struct Late {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
}

/// What a connection has sent so far.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Nothing,
    Greeting,
    /// The bytes of another program, or the end.
    Else,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener, gate: Arc<GateKeeper>) -> io::Result<Self> {
        let max_late = MAX_LATE.min(gate.share());
        // SAFETY: the listener owns its descriptor and never changes or closes it before it is dropped.
        let listener = unsafe { AsyncFd::register(listener) }?;
        Ok(Self {
            listener,
            gate,
            late: VecDeque::new(),
            max_late,
            refused: 0,
            logged_at: None,
            failed: LogLimit::default(),
        })
    }

    /// Passes connections to `admit` for ever.
    pub(super) async fn run(mut self, admit: impl Fn(TcpStream, SocketAddr)) {
        loop {
            self.wait().await;
            self.accept_batch(&admit).await;
            self.look_at_late(&admit);
            self.log_refused();
            tokio::task::yield_now().await;
        }
    }

    /// Waits for a connection, or until it is time to look at the late ones.
    async fn wait(&self) {
        let readable = async { drop(self.listener.readable().await) };
        if self.late.is_empty() {
            readable.await;
        } else {
            let _ = tokio::time::timeout(LOOK_EVERY, readable).await;
        }
    }

    async fn accept_batch(&mut self, admit: &impl Fn(TcpStream, SocketAddr)) {
        for _ in 0..BATCH {
            match self.accept() {
                Ok(Some((stream, peer))) if self.gate.allows(peer, false) => admit(stream, peer),
                Ok(Some((stream, peer))) => {
                    if self.late.len() >= self.max_late
                        && let Some(oldest) = self.late.pop_front()
                    {
                        self.decide(oldest, true, admit);
                    }
                    self.late.push_back(Late { stream, peer, since: Instant::now() });
                }
                Ok(None) => return,
                Err(error) => {
                    // Most likely the file descriptors are used up. Admitted connections continue,
                    // and an unauthenticated one is ended.
                    self.failed.log(move |count| tracing::warn!(count, %error, "cannot accept a connection"));
                    self.refuse(self.late.len() as u64);
                    self.late.clear();
                    if !self.gate.end_one() {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    return;
                }
            }
        }
    }

    /// The next connection; `None` if there is none.
    fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            match self.listener.try_io(Interest::READABLE, TcpListener::accept) {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    fn look_at_late(&mut self, admit: &impl Fn(TcpStream, SocketAddr)) {
        for _ in 0..self.late.len() {
            let Some(late) = self.late.pop_front() else { return };
            let is_last_look = late.since.elapsed() >= LATE_FOR;
            self.decide(late, is_last_look, admit);
        }
    }

    /// Admits or closes a late connection, or lets it go on waiting.
    fn decide(&mut self, late: Late, is_last_look: bool, admit: &impl Fn(TcpStream, SocketAddr)) {
        match sent(&late.stream) {
            Sent::Greeting if self.gate.allows(late.peer, true) => admit(late.stream, late.peer),
            Sent::Nothing if !is_last_look => self.late.push_back(late),
            _ => {
                self.refuse(1);
                // A reset leaves nothing behind in the kernel.
                let _ = SockRef::from(&late.stream).set_linger(Some(Duration::ZERO));
            }
        }
    }

    fn refuse(&mut self, connections: u64) {
        self.refused += connections;
        Refused::Flood.add(connections);
    }

    fn log_refused(&mut self) {
        if self.refused > 0 && self.logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            tracing::warn!(connections = self.refused, "refused connections of sources that open too many");
            (self.refused, self.logged_at) = (0, Some(Instant::now()));
        }
    }
}

fn sent(stream: &TcpStream) -> Sent {
    let mut bytes = [MaybeUninit::uninit(); GREETING_BYTES];
    match SockRef::from(stream).recv_with_flags(&mut bytes, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
        Ok(GREETING_BYTES) => {
            // SAFETY: the kernel has written all bytes.
            let bytes = bytes.map(|byte| unsafe { byte.assume_init() });
            if handshake::is_greeting(&bytes) { Sent::Greeting } else { Sent::Else }
        }
        Ok(1..) => Sent::Nothing,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Sent::Nothing,
        _ => Sent::Else,
    }
}

/// The gate of unauthenticated connections, and the tasks that serve them.
#[derive(Debug)]
pub(super) struct GateKeeper {
    /// The gate, and the task of each connection from the time when it has one.
    state: Mutex<(Gate, HashMap<Ticket, Option<AbortHandle>>)>,
    share: usize,
    /// The origin of the machine's time.
    origin: Instant,
}

/// Counts an unauthenticated connection until it is dropped.
#[derive(Debug)]
pub(super) struct Unproven {
    gate: Arc<GateKeeper>,
    ticket: Ticket,
}

impl GateKeeper {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        let gate = Gate::new(limit, Time::ZERO);
        Arc::new(Self { share: gate.share(), state: Mutex::new((gate, HashMap::new())), origin: Instant::now() })
    }

    fn share(&self) -> usize {
        self.share
    }

    fn now(&self) -> Time {
        Time::after(self.origin.elapsed())
    }

    fn allows(&self, peer: SocketAddr, greeted: bool) -> bool {
        let now = self.now();
        lock(&self.state).0.allows(now, Source::from(peer.ip()), greeted)
    }

    /// Serves a connection in a task, which ends early if another connection needs its place.
    pub(super) fn spawn<F>(self: &Arc<Self>, peer: SocketAddr, serve: impl FnOnce(Unproven) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let now = self.now();
        let (ticket, ended) = {
            let (gate, tasks) = &mut *lock(&self.state);
            let (ticket, ended) = gate.enter(now, Source::from(peer.ip()));
            tasks.insert(ticket, None);
            (ticket, ended.and_then(|ended| tasks.remove(&ended)).flatten())
        };
        if let Some(ended) = ended {
            ended.abort();
        }
        // The task needs the lock when it ends, and may end at once.
        let task = tokio::spawn(serve(Unproven { gate: self.clone(), ticket }));
        if let Some(entry) = lock(&self.state).1.get_mut(&ticket) {
            *entry = Some(task.abort_handle());
        }
    }

    /// Ends a connection to make room; false if there is none.
    fn end_one(&self) -> bool {
        let ended = {
            let (gate, tasks) = &mut *lock(&self.state);
            gate.end_one().and_then(|ended| tasks.remove(&ended)).flatten()
        };
        ended.inspect(AbortHandle::abort).is_some()
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let (gate, tasks) = &mut *lock(&self.gate.state);
        gate.leave(self.ticket);
        tasks.remove(&self.ticket);
    }
}

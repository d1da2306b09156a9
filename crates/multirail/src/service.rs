//! What a server does for its clients: answers requests, one session a thread.
//!
//! Every request is one message with a postcard body; what follows it is the request's own business.

use crate::error::{Error, Result};
use crate::multicast::{self, attend, discover};
use crate::payload::VecSink;
use crate::session::{Accepted, ListenConfig, Listener, NewSession};
use crate::transport::connect::Arrival;
use crate::{Session, Strategy, Token, bench, files, pipeline};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a server listens if nothing else is said.
pub const DEFAULT_PORT: u16 = 7717;
/// No request is longer; the longest carries a path.
const MAX_REQUEST_BYTES: u64 = 64 << 10;
/// Sessions served at once; further ones wait in the listener's queue.
const MAX_SESSIONS: usize = 256;

/// What a client can ask for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Send back `rounds` messages of `message_bytes`, with this strategy.
    Echo {
        /// Length of each.
        message_bytes: u64,
        /// How many.
        rounds: u32,
        /// By name; see [`Strategy`].
        strategy: String,
        /// Fragment of the papers' strategies.
        fragment_bytes: u32,
    },
    /// Receive messages of at most `message_bytes` until an empty one, and say what arrived when.
    Absorb {
        /// Length of each.
        message_bytes: u64,
    },
    /// Tell the CPU time this server has used, in seconds, as a little-endian `f64`.
    CpuTime,
    /// Receive files.
    Put(files::PutRequest),
    /// Send files.
    Get(files::GetRequest),
    /// Measure to other servers.
    Measure(discover::MeasureRequest),
    /// Run until a broadcast is over.
    Attend,
    /// Take part in a group; the invitation follows.
    Multicast(multicast::InviteRequest),
    /// Be a link between two members of a group.
    MulticastPeer(multicast::PeerHello),
    /// Take part in a group of filters; it follows.
    Pipeline,
    /// Carry an edge: an [`Edge`], or whatever the server's owner understands.
    Edge(Vec<u8>),
}

/// What a session can be from a request on, to its end.
enum Becomes {
    Link(multicast::PeerHello),
    Pipeline,
    Edge(Vec<u8>),
}

/// What an edge can be for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Edge {
    /// An edge of a group that this host takes part in.
    Pipeline(pipeline::EdgeId),
    /// Messages say what is done with them: [`bench::curve`].
    Measure,
}

impl Edge {
    /// As [`crate::transport::connect::Dial::edge`] wants it.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("enums of this kind always encode")
    }
}

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Where and whom.
    pub listen: ListenConfig,
    /// The folder that clients may read and write; nothing outside it.
    pub root: PathBuf,
}

/// Serves until the listener fails. `ready` is told the address.
pub async fn serve(config: ServeConfig, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    serve_attending(config, None, ready).await
}

/// As [`serve`], for a program that brings filters of its own to the pipelines of others.
pub async fn serve_filters(
    config: ServeConfig,
    filters: pipeline::Filters,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    serve_all(config, None, filters, ready).await
}

/// As [`serve`], for a server that may be asked to end with a broadcast: `attendance` tells when.
pub async fn serve_attending(
    config: ServeConfig,
    attendance: Option<Arc<attend::Attendance>>,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let filters = pipeline::Filters::built_in(&config.root);
    serve_all(config, attendance, filters, ready).await
}

async fn serve_all(
    config: ServeConfig,
    attendance: Option<Arc<attend::Attendance>>,
    filters: pipeline::Filters,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let session = config.listen.session.clone();
    let groups = multicast::Registry::new(&config.root, session.clone());
    let pipelines = Arc::new(pipeline::Registry::new(filters, session.clone()));
    let served = Arc::new(Served { root: config.root, token: session.token, attendance, groups, pipelines });
    let mut listener = Listener::bind(config.listen).await?;
    ready(listener.address());
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        while busy.load(Ordering::Relaxed) >= MAX_SESSIONS {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let accepted = listener.accept().await?;
        busy.fetch_add(1, Ordering::Relaxed);
        let (busy, served) = (busy.clone(), served.clone());
        // A thread and a runtime of its own: a message then wakes nobody but the one who waits for it.
        let spawned = std::thread::Builder::new().name("session".to_owned()).spawn(move || {
            let _slot = Slot(busy);
            match accepted {
                Accepted::Plain(stream) => drop(bench::echo_plain(stream)),
                Accepted::Edge(stream) => edge_ended(greet_edge(stream, &served)),
                Accepted::Session(new) => {
                    let peer = new.peer();
                    match block_on(serve_session(new, &served)) {
                        Ok(None) => tracing::debug!(%peer, "session ended"),
                        Ok(Some(arrival)) => edge_ended(serve_edge(arrival, &served)),
                        Err(error) => tracing::warn!(%peer, %error, "session failed"),
                    }
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot start a thread for a session");
        }
    }
}

/// What all sessions of a server share.
struct Served {
    root: PathBuf,
    token: Option<Token>,
    attendance: Option<Arc<attend::Attendance>>,
    groups: multicast::Registry,
    pipelines: Arc<pipeline::Registry>,
}

struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a future on a runtime of this thread.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| Error::Io { what: "starting a runtime", source })?.block_on(future)
}

fn greet_edge(stream: std::net::TcpStream, served: &Served) -> Result<()> {
    match Arrival::read(stream)? {
        Some(arrival) => serve_edge(arrival, served),
        None => Ok(()),
    }
}

fn edge_ended(how: Result<()>) {
    match how {
        Ok(()) | Err(Error::Closed) => {}
        Err(error) => tracing::warn!(%error, "an edge failed"),
    }
}

/// Whichever way it came.
fn serve_edge(arrival: Arrival, served: &Served) -> Result<()> {
    match postcard::take_from_bytes(arrival.edge()) {
        Ok((Edge::Pipeline(id), [])) => served.pipelines.arrive(id, arrival),
        Ok((Edge::Measure, [])) => bench::measure_edge(arrival),
        _ => Err(Error::Protocol("an edge for nothing that is known here".to_owned())),
    }
}

/// Serves a session to its end; or until it is an edge, which no runtime drives then.
async fn serve_session(new: NewSession, served: &Served) -> Result<Option<Arrival>> {
    let (peer, mut session) = (new.peer(), new.start());
    match answer(&mut session, served).await? {
        None => {}
        Some(Becomes::Link(hello)) => multicast::serve_peer(&served.groups, session, peer, hello).await?,
        Some(Becomes::Pipeline) => pipeline::serve(&served.pipelines, session).await?,
        Some(Becomes::Edge(edge)) => return Ok(Some(Arrival::of_session(session.into_new(peer), edge))),
    }
    Ok(None)
}

/// Answers a session's requests until the client closes it, or has it be something else.
async fn answer(session: &mut Session, served: &Served) -> Result<Option<Becomes>> {
    let root = served.root.as_path();
    loop {
        let request = match receive(session).await {
            Err(Error::Closed) => return Ok(None),
            request => request?,
        };
        match request {
            Request::Echo { message_bytes, rounds, strategy, fragment_bytes } => {
                let strategy: Strategy =
                    strategy.parse().map_err(|e| Error::Protocol(format!("it asks for an echo with {e}")))?;
                bench::echo(session, message_bytes, rounds, strategy, fragment_bytes).await?;
            }
            Request::Absorb { message_bytes } => bench::absorb(session, message_bytes).await?,
            Request::CpuTime => session.send(&bench::cpu_seconds().to_le_bytes()).await?,
            Request::Put(request) => files::serve_put(session, root, request).await?,
            Request::Get(request) => files::serve_get(session, root, request).await?,
            Request::Measure(request) => discover::serve_measure(session, request, served.token.as_ref()).await?,
            Request::Multicast(request) => multicast::serve_invite(&served.groups, session, request).await?,
            Request::MulticastPeer(hello) => return Ok(Some(Becomes::Link(hello))),
            Request::Pipeline => return Ok(Some(Becomes::Pipeline)),
            Request::Edge(edge) => return Ok(Some(Becomes::Edge(edge))),
            Request::Attend => attend::serve_attend(session, served.attendance.as_deref()).await?,
        }
    }
}

/// Sends a body as one message.
pub(crate) async fn send<T: Serialize>(session: &mut Session, body: &T) -> Result<()> {
    let bytes =
        postcard::to_allocvec(body).map_err(|e| Error::Protocol(format!("a request that does not encode: {e}")))?;
    session.send(&bytes).await
}

/// Receives one message as a body.
pub(crate) async fn receive<T: DeserializeOwned>(session: &mut Session) -> Result<T> {
    let mut sink = VecSink::new(MAX_REQUEST_BYTES);
    match session.recv_into(&mut sink).await {
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            return Err(Error::Protocol(format!("a request of {message_bytes} bytes")));
        }
        received => received?,
    };
    match postcard::take_from_bytes(&sink.bytes) {
        Ok((body, [])) => Ok(body),
        _ => Err(Error::Protocol("a request that does not parse".to_owned())),
    }
}

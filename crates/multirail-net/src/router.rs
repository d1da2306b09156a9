//! A server's router: hands each request to the handler of its protocol.
//!
//! A product registers one [`ProtocolHandler`] under its [`ProtocolName`]. The router knows only
//! names; the server that joins the products is the one place that knows them all.

use crate::Session;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::protocol::ProtocolName;
use crate::record::{Notes, Observer, Record};
use crate::request::{Request, receive_request};
use crate::runtime::block_on;
use crate::secure::public_key::PublicKey;
use crate::session::{Accepted, Listener, NewConnection, NewSession, Place, Watch};
use crate::stop::Stop;
use crate::traffic::{Meter, Part, end_all};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The default of [`Router::max_sessions`].
const MAX_SESSIONS: usize = 256;
/// The default of [`Router::first_request_within`].
const FIRST_REQUEST_WITHIN: Duration = Duration::from_secs(30);
/// How long sessions that a stopped server ends may take to tell their peers and to remove unfinished files.
const END_WITHIN: Duration = Duration::from_secs(2);
/// How often it looks whether a client has its answers.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What clients of a stopped server are told.
const STOPPED: &str = "the server was stopped; what was confirmed is kept";

/// The future of [`ProtocolHandler::answer`]. It runs on the session's thread, so it need not be
/// `Send`.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Next>> + 'a>>;

/// Serves one protocol.
///
/// # Examples
///
/// A protocol of one's own has a name, a type for its requests, and a handler:
///
/// ```
/// use multirail_net::protocol::ProtocolName;
/// use multirail_net::request::{self, Request};
/// use multirail_net::router::{Answering, Next, ProtocolHandler, Router};
/// use multirail_net::session::{ListenConfig, Listener};
/// use multirail_net::{Config, Session};
/// use serde::{Deserialize, Serialize};
/// use std::net::SocketAddr;
/// use std::sync::Arc;
///
/// const SQUARE: ProtocolName = ProtocolName::new("square");
///
/// #[derive(Serialize, Deserialize)]
/// struct SquareRequest {
///     number: u32,
/// }
///
/// struct SquareHandler;
///
/// impl ProtocolHandler for SquareHandler {
///     fn answer<'a>(&'a self, mut session: Session, _: SocketAddr, request: Request) -> Answering<'a> {
///         Box::pin(async move {
///             let SquareRequest { number } = request.parse()?;
///             request::send(&mut session, &u64::from(number).pow(2)).await?;
///             Ok(Next::Request(session))
///         })
///     }
/// }
///
/// # multirail_net::runtime::block_on(async {
/// let listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new())).await?;
/// let address = listener.address().to_string();
/// tokio::spawn(Router::new().register(SQUARE, Arc::new(SquareHandler)).serve(listener));
///
/// let mut session = Session::connect(&address, Config::new()).await?;
/// request::send_request(&mut session, SQUARE, &SquareRequest { number: 12 }).await?;
/// assert_eq!(request::receive::<u64>(&mut session).await?, 144);
/// session.close().await?;
/// # Ok(())
/// # })?;
/// # Ok::<(), multirail_net::Error>(())
/// ```
pub trait ProtocolHandler: Send + Sync + 'static {
    /// Answers one request of a session whose client reached this host from `peer`.
    ///
    /// An error ends the session.
    fn answer<'a>(&'a self, session: Session, peer: SocketAddr, request: Request) -> Answering<'a>;

    /// Serves an authenticated connection that belongs to no session. It may block: the connection
    /// has its own thread.
    fn serve_connection(&self, connection: Connection) -> Result<()> {
        drop(connection);
        Err(Error::Protocol("a connection for a protocol that only serves sessions".to_owned()))
    }

    /// How long a connection may be idle in [`ProtocolHandler::serve_connection`]. Reading and
    /// writing then fail. A connection that has been idle for a second is also ended when another
    /// client needs its place.
    ///
    /// The default `None` means that the protocol has time-outs of its own.
    fn idle_limit(&self) -> Option<Duration> {
        None
    }
}

/// What happens to a session after a request.
#[non_exhaustive]
pub enum Next {
    /// The request is answered, and the client may send another one.
    Request(Session),
    /// The handler has ended the session, or passed it on.
    Done,
    /// The session continues elsewhere: the function is called after this thread's runtime has
    /// ended, and may block.
    Detached(Box<dyn FnOnce() -> Result<()>>),
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Next::Request(_) => "Request",
            Next::Done => "Done",
            Next::Detached(_) => "Detached",
        })
    }
}

/// The protocols that a server serves.
pub struct Router {
    handlers: HashMap<ProtocolName, Arc<dyn ProtocolHandler>>,
    max_sessions: usize,
    first_request_within: Duration,
    observer: Option<Arc<dyn Observer>>,
    stop: Stop,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            handlers: HashMap::new(),
            max_sessions: MAX_SESSIONS,
            first_request_within: FIRST_REQUEST_WITHIN,
            observer: None,
            stop: Stop::new(),
        }
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Router {
    /// Creates a router without protocols.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers `handler` for `protocol`.
    ///
    /// # Panics
    ///
    /// If the protocol already has a handler.
    #[must_use]
    pub fn register(mut self, protocol: ProtocolName, handler: Arc<dyn ProtocolHandler>) -> Self {
        let before = self.handlers.insert(protocol, handler);
        assert!(before.is_none(), "protocol {protocol} has two handlers");
        self
    }

    /// Sets how many sessions and connections are served at the same time; default 256. Each has a
    /// thread.
    #[must_use]
    pub fn max_sessions(mut self, count: usize) -> Self {
        self.max_sessions = count;
        self
    }

    /// Sets within which time a session must make its first request; default 30 s. Between requests
    /// there is no limit.
    #[must_use]
    pub fn first_request_within(mut self, time: Duration) -> Self {
        self.first_request_within = time;
        self
    }

    /// Sets what gets a record of each request; default nothing.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets what ends the server; default nothing.
    #[must_use]
    pub fn stopped_by(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Serves what `listener` accepts until that fails, or until [`Stop::stop`]. Each session has its own thread and
    /// runtime, so that a message wakes only the thread that waits for it.
    ///
    /// A session that fails is logged and ends; the others go on. When as many are served as allowed,
    /// the next client gets the place of a session that waits for a request, or of an idle
    /// connection ([`Places`](multirail_proto::admission::Places) says which). If there is none, the
    /// client gets [`Error::Busy`].
    ///
    /// After [`Stop::stop`], a new client gets [`Error::Stopping`], and idle sessions are ended. Requests
    /// that run may go on for the given time. Then this ends all sessions of the process, which tells
    /// the peers the reason, and returns.
    ///
    /// # Errors
    ///
    /// Those of [`Listener::accept`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops accepting. Sessions that have begun go on.
    pub async fn serve(self, mut listener: Listener) -> Result<()> {
        listener.limit_places(self.max_sessions);
        let router = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted?,
                () = router.stop.wanted() => break,
            };
            let (router, active) = (router.clone(), router.stop.enter());
            let spawned = std::thread::Builder::new().name("session".to_owned()).spawn(move || {
                router.serve_accepted(accepted);
                drop(active);
            });
            if let Err(error) = spawned {
                tracing::error!(%error, "cannot start a thread for a session");
            }
        }
        listener.close_places();
        if !router.stop.ended().await {
            tracing::warn!(count = router.stop.active(), "ending sessions whose requests have not finished");
            end_all(STOPPED);
            let _ = tokio::time::timeout(END_WITHIN, router.stop.idle()).await;
        }
        Ok(())
    }

    fn serve_accepted(&self, accepted: Accepted) {
        match accepted {
            Accepted::Connection(connection) => {
                let protocol = connection.protocol;
                log_ended(protocol, self.serve_connection(connection));
            }
            Accepted::Session(mut new) => {
                let (peer, place) = (new.peer(), new.place.take());
                match block_on(self.serve_session(new, place.as_ref())) {
                    Ok(None) | Err(Error::Closed) => tracing::debug!(%peer, "session ended"),
                    Ok(Some((observed, detached))) => {
                        let ended = detached();
                        observed.end(self, ended.as_ref().err());
                        log_ended(observed.protocol, ended);
                    }
                    Err(error) => tracing::warn!(%peer, %error, "session failed"),
                }
            }
        }
    }

    fn serve_connection(&self, connection: NewConnection) -> Result<()> {
        let NewConnection { protocol, connection, place } = connection;
        let handler = self.handler(protocol)?;
        let peer = connection.socket().peer_addr().map_err(Error::io("setting up a connection"))?;
        let client = (peer, connection.peer().key, connection.client().name.clone());
        let observed = Observed::begin(self, client, protocol, Notes::default(), None);
        if let Some(place) = &place {
            place.set_busy();
        }
        if let Some(limit) = handler.idle_limit() {
            let socket = connection.socket();
            let set_up = socket.set_read_timeout(Some(limit)).and_then(|()| socket.set_write_timeout(Some(limit)));
            let copy = set_up.and_then(|()| socket.try_clone()).map_err(Error::io("setting up a connection"))?;
            if let Some(place) = &place {
                place.end_when_idle(copy);
            }
        }
        let served = handler.serve_connection(connection);
        observed.end(self, served.as_ref().err());
        served
    }

    async fn serve_session(&self, new: NewSession, place: Option<&Place>) -> Result<Option<Detached>> {
        let (peer, mut session) = (new.peer(), new.start());
        let mut limit = Some(self.first_request_within);
        loop {
            let request = match self.next_request(&mut session, place, limit.take()).await? {
                Waited::Request(request) => request,
                Waited::Closed => {
                    // The client may have to come back to learn that its requests have ended.
                    let _ = session.close().await;
                    return Ok(None);
                }
                Waited::Ended(reason) => {
                    tracing::info!(%peer, reason, "an idle session was ended");
                    return Ok(None);
                }
            };
            let protocol = request.protocol();
            let handler = self.handler(protocol)?;
            let client = (peer, session.peer().key, session.client().name.clone());
            let meter = Some(session.meter());
            let observed = Observed::begin(self, client, protocol, request.notes().clone(), meter);
            let next = handler.answer(session, peer, request).await;
            match next {
                Ok(Next::Detached(detached)) => return Ok(Some((observed, detached))),
                ended => {
                    observed.end(self, ended.as_ref().err());
                    match ended? {
                        Next::Request(same) => session = same,
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// Waits for a request, while the session may be ended in favour of another one.
    async fn next_request(
        &self,
        session: &mut Session,
        place: Option<&Place>,
        limit: Option<Duration>,
    ) -> Result<Waited> {
        if let Some(place) = place {
            place.set_idle();
        }
        let watch = session.watch();
        let ending = async {
            let displaced = async {
                match place {
                    Some(place) => place.ended().await,
                    None => std::future::pending().await,
                }
            };
            let reason = tokio::select! {
                () = displaced => format!(
                    "it serves {} sessions, its limit, and needed the place of this idle one",
                    self.max_sessions
                ),
                () = self.stopped(&watch) => STOPPED.to_owned(),
                () = tokio::time::sleep(limit.unwrap_or(Duration::MAX)) => {
                    format!("no request came within {:?}", self.first_request_within)
                }
            };
            // Before the other future is dropped, which would be the reason otherwise.
            watch.end(reason.clone());
            reason
        };
        let waited = tokio::select! {
            biased;
            request = receive_request(session) => match request {
                Err(Error::Closed) => Waited::Closed,
                request => Waited::Request(request?),
            },
            reason = ending => Waited::Ended(reason),
        };
        if let (Waited::Request(_), Some(place)) = (&waited, place) {
            place.set_busy();
        }
        Ok(waited)
    }

    /// Waits until the server is to end and the client has the answers to its requests, which an early
    /// end would take from it.
    async fn stopped(&self, watch: &Watch) {
        self.stop.wanted().await;
        let confirmed = async {
            while !watch.is_confirmed() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(END_WITHIN, confirmed).await;
    }

    fn handler(&self, protocol: ProtocolName) -> Result<&dyn ProtocolHandler> {
        let handler = self.handlers.get(&protocol).map(|handler| &**handler);
        handler.ok_or_else(|| Error::Protocol(format!("a request for `{protocol}`, which this server does not serve")))
    }
}

type Detached = (Observed, Box<dyn FnOnce() -> Result<()>>);

/// A request that runs, with what is needed for its record.
struct Observed {
    peer: SocketAddr,
    key: PublicKey,
    name: String,
    protocol: ProtocolName,
    notes: Notes,
    began: SystemTime,
    clock: Instant,
    session: Option<(Meter, Part)>,
}

impl Observed {
    fn begin(
        router: &Router,
        (peer, key, name): (SocketAddr, PublicKey, String),
        protocol: ProtocolName,
        notes: Notes,
        session: Option<Meter>,
    ) -> Self {
        if let Some(observer) = &router.observer {
            observer.request_began(protocol);
        }
        let session = session.map(|meter| (meter.clone(), meter.read()));
        Self { peer, key, name, protocol, notes, began: SystemTime::now(), clock: Instant::now(), session }
    }

    fn end(&self, router: &Router, error: Option<&Error>) {
        let Some(observer) = &router.observer else { return };
        let noted = self.notes.noted();
        let (mut sent_bytes, mut received_bytes) = noted.elsewhere_bytes;
        if let Some((meter, before)) = &self.session {
            let now = meter.read();
            sent_bytes += now.sent_bytes - before.sent_bytes;
            received_bytes += now.received_bytes - before.received_bytes;
        }
        let error = error.map(ToString::to_string);
        observer.request_ended(&Record {
            peer: self.peer,
            identity: Some(&self.key.to_string()),
            name: &self.name,
            protocol: self.protocol,
            began: self.began,
            took: self.clock.elapsed(),
            sent_bytes,
            received_bytes,
            notes: &noted,
            error: error.as_deref(),
        });
    }
}

fn log_ended(protocol: ProtocolName, ended: Result<()>) {
    match ended {
        Ok(()) | Err(Error::Closed) => {}
        Err(error) => tracing::warn!(%protocol, %error, "a connection failed"),
    }
}

/// How waiting for a request ended.
enum Waited {
    Request(Request),
    /// The client has closed the session.
    Closed,
    /// The server has ended the session for this reason.
    Ended(String),
}

//! Joins a broadcast by a ticket.

use super::driver::MemberDriver;
use super::progress::{HostProgress, HostState, Progress};
use super::serve::{Registry, attend, serve_peer};
use super::ticket::Ticket;
use crate::request::{MULTICAST, MulticastRequest};
use crate::wire::{FromHost, Invite, JoinReply, JoinRequest, MAX_INVITE_BYTES, Status, receive_body};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use multirail_net::error::{Error, Result};
use multirail_net::permissions::Permissions;
use multirail_net::probe::{PROBE, ProbeHandler};
use multirail_net::request::{self, Request};
use multirail_net::router::{Answering, Next, ProtocolHandler, Router};
use multirail_net::session::{ListenConfig, Listener};
use multirail_net::{Config, Session};
use multirail_proto::multicast::MemberId;
use multirail_proto::multicast::member::Membership;
use multirail_proto::units::format_size;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A session to the root outlives its last rail by this much. Then the host joins again.
const SESSION_GIVES_UP_AFTER: Duration = Duration::from_secs(1);
/// The pause before a root that was lost is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How often the display is told.
const SHOWN_EVERY: Duration = Duration::from_millis(250);
/// The time limit for links to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// How to fetch. The defaults fit most uses.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FetchOptions {
    /// The folder below which files are written; default the current one.
    pub root: PathBuf,
    /// Where the data goes below this folder, as with `multirail cp`. Default: the folder itself.
    pub destination: PathBuf,
    /// Whether files and directories are on the disk before the host is complete; default no.
    pub sync: bool,
    /// How long to stay and serve other hosts once everything is here; default not at all.
    pub seed_for: Duration,
    /// The token, keys and rails of all sessions. The secret of a ticket replaces the token.
    pub config: Config,
    /// The progress, for a display. This host is its only host.
    pub progress: Arc<Progress>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            root: PathBuf::from("."),
            destination: PathBuf::new(),
            sync: false,
            seed_for: Duration::ZERO,
            config: Config::default(),
            progress: Arc::default(),
        }
    }
}

impl FetchOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the folder below which files are written.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Sets where the data goes below that folder.
    #[must_use]
    pub fn destination(mut self, destination: impl Into<PathBuf>) -> Self {
        self.destination = destination.into();
        self
    }

    /// Sets whether data is on the disk before the host is complete.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Sets how long to serve other hosts afterwards.
    #[must_use]
    pub fn seed_for(mut self, duration: Duration) -> Self {
        self.seed_for = duration;
        self
    }

    /// Sets the token, keys and rails of all sessions.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }
}

/// What was fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fetched {
    /// The length of the data in bytes.
    pub total_bytes: u64,
    /// Bytes that an earlier attempt left behind.
    pub resumed_bytes: u64,
    /// The number of hosts that sent any.
    pub senders: usize,
    /// The time until all files had their names.
    pub elapsed: Duration,
}

/// Why the data is not here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The root does not let this host take part.
    #[error("the root of the broadcast refuses this host: {0}")]
    Refused(String),
    /// This host cannot take part, for example because its disk is full.
    #[error("{0}")]
    Failed(String),
    /// The root has left, and no host that could be reached had the rest.
    #[error("the broadcast ended before everything was here: {}", held(.held_bytes, .total_bytes))]
    Ended {
        /// Bytes of verified pieces, with which another attempt continues.
        held_bytes: u64,
        /// The length of the data in bytes; 0 if it is not known.
        total_bytes: u64,
    },
    /// The root could not be reached.
    #[error(transparent)]
    Own(#[from] Error),
}

fn held(held_bytes: &u64, total_bytes: &u64) -> String {
    match held_bytes {
        0 => "nothing has arrived; ask for a new ticket".to_owned(),
        held => format!(
            "{} of {} are kept; with a new ticket, the same command continues from there",
            format_size(*held),
            format_size(*total_bytes)
        ),
    }
}

/// Joins the broadcast of `ticket`, gets its data from all hosts that have any, and leaves again.
///
/// Every piece is verified by the hash of the manifest that the ticket has. Files get their names when they are
/// complete. What an earlier attempt left behind is used.
///
/// # Errors
///
/// [`FetchError`].
///
/// # Cancel safety
///
/// Dropping the future leaves the broadcast. Verified pieces stay, and another call continues with them.
pub async fn fetch(ticket: &Ticket, options: &FetchOptions) -> Result<Fetched, FetchError> {
    let began = Instant::now();
    let config = ticket.config(&options.config);
    let listener = listen(config.clone()).await?;
    let port = listener.address().port();
    let registry = Arc::new(Registry::new(&options.root, config.clone()));
    let router = Router::new()
        .register(PROBE, Arc::new(ProbeHandler::default()))
        .register(MULTICAST, Arc::new(Links { registry: registry.clone() }));
    let serving = tokio::spawn(router.serve(listener));
    let _serving = AbortOnDrop(serving);
    let root = Root { ticket, config, port };
    let (session, address, mut invite) = root.join(None).await?;
    let me = invite.me;
    // The root is where this host has reached it, and the data goes where its user wants it.
    invite.hosts.get_mut(invite.root as usize).into_iter().for_each(|host| host.address.clone_from(&address));
    invite.destination = Some(options.destination.as_os_str().as_bytes().to_vec());
    invite.sync = options.sync;
    let joined = registry.join(ticket.group(), invite, (ticket.root(), &Permissions::default()), true);
    let (member, _) = joined.map_err(FetchError::Failed)?;
    options.progress.start(Some(began), 0, vec![shown(&Status::default())], 1);
    let left = Leaving(member.clone());
    let done = tokio::select! {
        done = take_part(&root, me, session, &member, options.seed_for) => done,
        never = show(&member, &options.progress) => match never {},
    };
    drop(left);
    let _ = tokio::time::timeout(END_TIMEOUT, member.links_ended()).await;
    outcome(&member, done.unwrap_or_else(Instant::now) - began)
}

/// A host takes part until it is told to leave, or has everything and has served for `seed_for`. Returns when
/// it had everything.
async fn take_part(
    root: &Root<'_>,
    me: MemberId,
    mut session: Session,
    member: &Arc<MemberDriver>,
    seed_for: Duration,
) -> Option<Instant> {
    let mut done = None;
    let enough = async {
        complete(member).await;
        done = Some(Instant::now());
        tokio::time::sleep(seed_for).await;
    };
    let mut enough: Pin<Box<dyn Future<Output = ()> + Send + '_>> = Box::pin(enough);
    loop {
        match attend(&mut session, member, &mut enough).await {
            Ok(()) => {
                let _ = tokio::time::timeout(END_TIMEOUT, session.close()).await;
                break;
            }
            Err(error) => tracing::debug!(%error, "the root is lost"),
        }
        // The links to other hosts stay, and data goes on.
        let again = async {
            while !member.may_end_alone() {
                match root.join(Some(me)).await {
                    Ok((session, _, invite)) if invite.me == me => return Some(session),
                    Ok(_) => tracing::debug!("the root has another number for this host"),
                    Err(error) => tracing::debug!(%error, "joining again"),
                }
                tokio::time::sleep(RETRY_EVERY).await;
            }
            None
        };
        session = tokio::select! {
            again = again => match again {
                Some(session) => session,
                None => break,
            },
            () = &mut enough => break,
        };
    }
    drop(enough);
    done
}

/// Waits until this host has everything under its name.
async fn complete(member: &MemberDriver) {
    let mut changed = member.watch();
    while !matches!(member.report(), FromHost::Status(Status { done: true, .. })) && changed.changed().await.is_ok() {}
}

fn outcome(member: &MemberDriver, elapsed: Duration) -> Result<Fetched, FetchError> {
    if let Membership::Failed(why) = member.membership() {
        return Err(FetchError::Failed(why));
    }
    let total_bytes = member.total_bytes().unwrap_or(0);
    match member.report() {
        FromHost::Status(Status { done: true, resumed_bytes, received_bytes, .. }) => {
            Ok(Fetched { total_bytes, resumed_bytes, senders: received_bytes.len(), elapsed })
        }
        FromHost::Status(Status { held_bytes, .. }) => Err(FetchError::Ended { held_bytes, total_bytes }),
        _ => Err(FetchError::Ended { held_bytes: 0, total_bytes }),
    }
}

/// Shows the progress of this host for ever.
async fn show(member: &MemberDriver, progress: &Progress) -> std::convert::Infallible {
    loop {
        if let FromHost::Status(status) = member.report() {
            progress.update(|snapshot| {
                snapshot.total_bytes = member.total_bytes().unwrap_or(0);
                snapshot.hosts = vec![shown(&status)];
            });
        }
        tokio::time::sleep(SHOWN_EVERY).await;
    }
}

fn shown(status: &Status) -> HostProgress {
    let state = if status.done { HostState::Complete } else { HostState::Running };
    HostProgress { address: "this host".to_owned(), cluster: 0, held_bytes: status.held_bytes, state }
}

/// The root of the broadcast, as a host that joins reaches it.
struct Root<'a> {
    ticket: &'a Ticket,
    config: Config,
    /// Where this host listens.
    port: u16,
}

impl Root<'_> {
    /// Asks to take part: the session, the address at which the root was reached, and the invitation.
    async fn join(&self, me: Option<MemberId>) -> Result<(Session, String, Invite), FetchError> {
        let (mut session, address) = self.connect().await?;
        let asked = JoinRequest { group: self.ticket.group(), port: self.port, me };
        request::send_request(&mut session, MULTICAST, &MulticastRequest::Join(asked)).await?;
        let invite = match receive_body(session.split().1, MAX_INVITE_BYTES).await? {
            JoinReply::Invite(invite) => *invite,
            JoinReply::Refused(why) => return Err(FetchError::Refused(why)),
        };
        if invite.manifest != Some(*self.ticket.manifest()) {
            return Err(FetchError::Refused("it sends other data than the ticket says".to_owned()));
        }
        Ok((session, address, invite))
    }

    /// A session to the first address that answers with the root's key.
    async fn connect(&self) -> Result<(Session, String)> {
        let addresses = self.ticket.addresses();
        let mut attempts: FuturesUnordered<_> = addresses.iter().map(|address| self.connect_to(address)).collect();
        let mut first = None;
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok(session) => return Ok(session),
                // An address that nothing answers at tells less than another error.
                Err(error)
                    if first.is_none() || matches!(first, Some(Error::Unreachable { .. } | Error::NoRail { .. })) =>
                {
                    first = Some(error)
                }
                Err(_) => {}
            }
        }
        Err(first.unwrap_or_else(|| Error::Protocol("the ticket has no address".to_owned())))
    }

    async fn connect_to(&self, address: &str) -> Result<(Session, String)> {
        let known_hosts = self.config.known_hosts.clone().with(address, self.ticket.root());
        let config = self.config.clone().known_hosts(known_hosts).give_up_after(SESSION_GIVES_UP_AFTER);
        Ok((Session::connect(address, config).await?, address.to_owned()))
    }
}

async fn listen(config: Config) -> Result<Listener> {
    let bind = |address: SocketAddr| Listener::bind(ListenConfig::new(address, config.clone()));
    match bind((Ipv6Addr::UNSPECIFIED, 0).into()).await {
        Ok(listener) => Ok(listener),
        Err(_) => bind((Ipv4Addr::UNSPECIFIED, 0).into()).await,
    }
}

/// Takes links from other members, and nothing else.
struct Links {
    registry: Arc<Registry>,
}

impl ProtocolHandler for Links {
    fn answer<'a>(&'a self, session: Session, peer: SocketAddr, request: Request) -> Answering<'a> {
        Box::pin(async move {
            match request.parse()? {
                MulticastRequest::Peer(hello) => serve_peer(&self.registry, session, peer, hello).await?,
                _ => return Err(Error::Protocol("a host that fetches takes no invitation".to_owned())),
            }
            Ok(Next::Done)
        })
    }
}

/// Leaves the group when it is dropped.
struct Leaving(Arc<MemberDriver>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Ends the task with this value.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

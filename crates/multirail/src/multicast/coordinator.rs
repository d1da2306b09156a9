//! The coordinator: invites the hosts, and keeps the board of how far each is.

use super::member::{Member, Setting, State};
use super::options::{Host, Options};
use super::progress::{HostProgress, HostState};
use super::serve::serve_root;
use super::store::StoreError;
use super::summary::{HostSummary, Outcome, Summary};
use super::wire::{
    FromHost, GroupId, Invite, InviteHost, InviteRequest, MAX_STATUS_BYTES, Status, ToHost, receive_body, send_body,
};
use super::{BroadcastError, Store};
use crate::error::{Error, Result};
use crate::service::{self, Request};
use crate::session::{Accepted, ListenConfig, Listener};
use crate::{Config, Session};
use multirail_proto::multicast::{MemberId, Members};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How often a host that is not there is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// A session to a host outlives its last rail by this much; then the host is invited again.
const SESSION_GIVES_UP_AFTER: Duration = Duration::from_secs(1);
/// A host that tells nothing for this long is lost. One that is well tells something every second.
const SILENCE: Duration = Duration::from_secs(30);
/// The broadcast begins when all hosts have answered or failed, or some have and nothing more came for this long.
const ANSWERS: Duration = Duration::from_secs(1);
/// How long hosts have to take their leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// What hosts are invited to.
pub(super) struct Coordinator {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    hosts: JoinSet<()>,
    began: Instant,
}

struct Shared {
    id: GroupId,
    member: Arc<Member>,
    given: Vec<Host>,
    options: Options,
    seed: u64,
    port: u16,
    destination: Option<Vec<u8>>,
    manifest: Option<[u8; 32]>,
    board: Mutex<Vec<Seat>>,
    news: watch::Sender<u64>,
    /// Hosts shall leave.
    over: watch::Sender<bool>,
    /// Transfers below this number are over.
    over_below: watch::Sender<u32>,
}

/// One host on the board.
#[derive(Debug, Clone)]
struct Seat {
    state: SeatState,
    status: Status,
    complete_after: Option<Duration>,
}

#[derive(Debug, Clone)]
enum SeatState {
    /// The first attempt to reach it.
    Trying,
    /// It takes part.
    Joined,
    /// It was not reached, or was lost.
    Lost { why: String, was_there: bool, since: Instant },
    /// It will not take part any more.
    Failed(String),
}

impl Coordinator {
    /// Begins a group and invites `hosts`. `destination`: below their served folders; `None`: into memory. `manifest`: the id of
    /// the only one there will be.
    pub async fn begin(
        hosts: &[Host],
        root_cluster: u32,
        options: &Options,
        destination: Option<Vec<u8>>,
        manifest: Option<[u8; 32]>,
    ) -> Result<Self, BroadcastError> {
        let members = members(hosts, root_cluster)?;
        if options.method.needs_bandwidths() && options.bandwidths.is_none() {
            let why = format!("method {} needs the bandwidths between the clusters", options.method);
            return Err(BroadcastError::Hosts(why));
        }
        let listener = listen(hosts, options.config.clone()).await?;
        let (id, mut seed) = (random(), options.seed);
        let seed = *seed.get_or_insert_with(|| u64::from_le_bytes(random()));
        let port = listener.address().port();
        let root = InviteHost { address: String::new(), cluster: root_cluster };
        let entry = |h: &Host| InviteHost { address: h.address.clone(), cluster: h.cluster };
        let member = Member::begin(Setting {
            id,
            hosts: std::iter::once(root).chain(hosts.iter().map(entry)).collect(),
            me: 0,
            members,
            method: options.method,
            bandwidths: options.bandwidths.clone(),
            seed,
            config: options.config.clone(),
            manifest,
            open: Box::new(|_, _| Err(StoreError::Destination("the root receives nothing".to_owned()))),
            done: Box::new(|_| {}),
        });
        let accepting = tokio::spawn(accept(listener, member.clone()));
        let seat = Seat { state: SeatState::Trying, status: Status::default(), complete_after: None };
        let shared = Arc::new(Shared {
            id,
            member,
            given: hosts.to_vec(),
            options: options.clone(),
            seed,
            port,
            destination,
            manifest,
            board: Mutex::new(vec![seat; hosts.len()]),
            news: watch::Sender::new(0),
            over: watch::Sender::new(false),
            over_below: watch::Sender::new(0),
        });
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for host in 0..hosts.len() {
            tasks.spawn(attend(shared.clone(), host));
        }
        Ok(Self { shared, accepting, hosts: tasks, began })
    }

    /// Waits until every host has answered or could not be reached; of those that keep one waiting only so long.
    pub async fn gather(&self) {
        let mut news = self.shared.news.subscribe();
        loop {
            let trying = |s: &Seat| matches!(s.state, SeatState::Trying);
            let (none, some) = {
                let board = self.shared.board();
                (!board.iter().any(trying), board.iter().any(|s| matches!(s.state, SeatState::Joined)))
            };
            if none {
                return;
            }
            if tokio::time::timeout(ANSWERS, news.changed()).await.is_err() && some {
                return;
            }
        }
    }

    /// Broadcasts what `store` has, as the group's number `transfer`, and waits for everyone who can get it.
    pub async fn broadcast(
        &mut self,
        transfer: u32,
        store: Arc<dyn Store>,
        data: Vec<u8>,
    ) -> Result<Summary, BroadcastError> {
        let (pieces, inline) = (store.manifest().pieces(), !data.is_empty());
        let setup = self.began.elapsed();
        self.began = Instant::now();
        self.shared.board().iter_mut().for_each(|s| {
            s.status = Status { complaints: std::mem::take(&mut s.status.complaints), ..Status::default() };
            s.complete_after = None;
        });
        self.shared.start_progress(pieces.total_bytes);
        self.shared.member.broadcast(transfer, store, data);
        self.settle(transfer).await?;
        let board = self.shared.board().clone();
        let give_up_after = self.shared.options.give_up_after;
        let hosts = self.shared.given.iter().zip(&board).map(|(host, seat)| HostSummary {
            address: host.address.clone(),
            cluster: host.cluster,
            outcome: match &seat.state {
                _ if seat.is_done(transfer) => Outcome::Complete,
                SeatState::Failed(why) | SeatState::Lost { why, .. } => Outcome::Failed(why.clone()),
                SeatState::Trying => Outcome::Failed("it did not answer in time".to_owned()),
                SeatState::Joined => Outcome::Failed(format!("nothing came there for {give_up_after:?}")),
            },
            resumed_bytes: seat.status.resumed_bytes,
            held_bytes: seat.status.held_bytes,
            complete_after: seat.complete_after,
            complaints: self.shared.complaints_of(&board, host),
        });
        Ok(Summary {
            total_bytes: pieces.total_bytes,
            piece_bytes: pieces.piece_bytes,
            pieces: if inline { 0 } else { pieces.count() },
            hosts: hosts.collect(),
            wan_bytes: self.shared.wan_bytes(&board),
            prepared: Duration::ZERO,
            setup,
            elapsed: board.iter().filter_map(|s| s.complete_after).max().unwrap_or_default(),
        })
    }

    /// Waits until nobody is left who could still get everything.
    async fn settle(&self, transfer: u32) -> Result<(), BroadcastError> {
        let mut news = self.shared.news.subscribe();
        let mut own = self.shared.member.watch();
        let (mut held_bytes, mut moved) = (0, Instant::now());
        loop {
            if let State::Failed(why) = self.shared.member.state() {
                return Err(BroadcastError::Source(why));
            }
            let mut left = false;
            {
                let mut board = self.shared.board();
                let now_held: u64 = board.iter().map(|s| s.status.held_bytes).sum();
                if now_held != held_bytes {
                    (held_bytes, moved) = (now_held, Instant::now());
                }
                for seat in board.iter_mut() {
                    if seat.is_done(transfer) && seat.complete_after.is_none() {
                        seat.complete_after = Some(self.began.elapsed());
                    }
                    left |= !seat.is_done(transfer) && matches!(seat.state, SeatState::Joined | SeatState::Trying);
                }
                let wait = self.shared.options.wait_for_lost;
                left |= board.iter().any(|s| !s.is_done(transfer) && s.may_come_back(wait));
            }
            if !left || moved.elapsed() > self.shared.options.give_up_after {
                return Ok(());
            }
            tokio::select! {
                _ = news.changed() => {}
                _ = own.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
    }

    /// Has everyone forget the transfers below `number`.
    pub fn forget_below(&self, number: u32) {
        self.shared.member.forget_below(number);
        self.shared.over_below.send_replace(number);
    }

    /// Has everyone leave, and ends.
    pub async fn end(mut self) {
        self.shared.over.send_replace(true);
        self.shared.member.leave();
        let all = async { while self.hosts.join_next().await.is_some() {} };
        let links = self.shared.member.links_ended();
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, futures_util::future::join(all, links)).await;
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.member.fail("the broadcast was given up".to_owned());
    }
}

impl Seat {
    fn is_done(&self, transfer: u32) -> bool {
        self.status.done && self.status.transfer == Some(transfer)
    }

    fn may_come_back(&self, wait: Duration) -> bool {
        matches!(&self.state, SeatState::Lost { was_there: true, since, .. } if since.elapsed() < wait)
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, host: usize, change: impl FnOnce(&mut Seat)) {
        let mut board = self.board();
        change(&mut board[host]);
        let wan_bytes = self.wan_bytes(&board);
        let state = board[host].shown();
        let held_bytes = board[host].status.held_bytes;
        drop(board);
        self.options.progress.update(|snapshot| {
            if let Some(shown) = snapshot.hosts.get_mut(host) {
                (shown.state, shown.held_bytes) = (state, held_bytes);
                snapshot.wan_bytes = wan_bytes;
            }
        });
        self.news.send_modify(|count| *count += 1);
    }

    fn start_progress(&self, total_bytes: u64) {
        let board = self.board();
        let shown = self.given.iter().zip(board.iter()).map(|(host, seat)| HostProgress {
            address: host.address.clone(),
            cluster: host.cluster,
            held_bytes: 0,
            state: seat.shown(),
        });
        self.options.progress.start(total_bytes, shown.collect(), self.member.members.clusters().len());
    }

    fn wan_bytes(&self, board: &[Seat]) -> Vec<Vec<u64>> {
        let clusters = self.member.members.clusters().len();
        let mut wan = vec![vec![0; clusters]; clusters];
        for (host, seat) in self.given.iter().zip(board) {
            for (from, bytes) in seat.status.received_bytes.iter().take(clusters).enumerate() {
                if from != host.cluster as usize {
                    wan[from][host.cluster as usize] += bytes;
                }
            }
        }
        wan
    }

    /// What other hosts say of `host`.
    fn complaints_of(&self, board: &[Seat], host: &Host) -> Vec<String> {
        let number = self.given.iter().position(|h| h == host).map_or(0, |i| i as MemberId + 1);
        let said = |(by, seat): (&Host, &Seat)| {
            let about = seat.status.complaints.iter().filter(|(whom, _)| *whom == number);
            about.map(|(_, what)| format!("{}: {what}", by.address)).collect::<Vec<_>>()
        };
        let own = self.member.complaints();
        let own = own.iter().filter(|(whom, _)| *whom == number).map(|(_, what)| format!("this host: {what}"));
        self.given.iter().zip(board).flat_map(said).chain(own).collect()
    }

    /// The invitation for a host to which this one has a session that leaves from `local`.
    fn invite(&self, host: usize, local: IpAddr) -> Invite {
        let mut hosts = self.member.hosts.clone();
        hosts[0].address = match &self.options.advertise {
            Some(address) if address.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) => {
                format!("[{address}]:{}", self.port)
            }
            Some(address) if address.parse::<SocketAddr>().is_err() && !has_port(address) => {
                format!("{address}:{}", self.port)
            }
            Some(address) => address.clone(),
            None => SocketAddr::new(local, self.port).to_string(),
        };
        Invite {
            hosts,
            me: host as MemberId + 1,
            root: 0,
            method: self.options.method,
            bandwidths: self.options.bandwidths.clone(),
            destination: self.destination.clone(),
            manifest: self.manifest,
            seed: self.seed,
        }
    }
}

impl Seat {
    fn shown(&self) -> HostState {
        match &self.state {
            _ if self.status.done => HostState::Complete,
            SeatState::Trying => HostState::Waiting(None),
            SeatState::Joined => HostState::Running,
            SeatState::Lost { why, .. } => HostState::Waiting(Some(why.clone())),
            SeatState::Failed(why) => HostState::Failed(why.clone()),
        }
    }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// The group of `hosts` and a root in `root_cluster`, which is its first member.
fn members(hosts: &[Host], root_cluster: u32) -> Result<Members, BroadcastError> {
    let mut seen = HashSet::new();
    if let Some(twice) = hosts.iter().find(|h| !seen.insert(&h.address)) {
        return Err(BroadcastError::Hosts(format!("host {} is listed twice", twice.address)));
    }
    let cluster_of = std::iter::once(root_cluster).chain(hosts.iter().map(|h| h.cluster)).collect();
    Members::new(cluster_of, 0).map_err(|e| BroadcastError::Hosts(e.to_string()))
}

/// Where members reach the root. A group's name cannot be guessed, and nothing else is served, so no token is asked for where
/// the hosts ask for none.
async fn listen(hosts: &[Host], session: Config) -> Result<Listener> {
    let bind = |ip: IpAddr| {
        let address = SocketAddr::new(ip, 0);
        Listener::bind(ListenConfig { address, insecure_no_token: true, session: session.clone() })
    };
    let is_here = |h: &Host| {
        let name = h.address.rsplit_once(':').map_or(h.address.as_str(), |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    if hosts.iter().all(is_here) && !hosts.iter().any(|h| h.address.starts_with('[')) {
        return bind(Ipv4Addr::LOCALHOST.into()).await;
    }
    match bind(Ipv6Addr::UNSPECIFIED.into()).await {
        Ok(listener) => Ok(listener),
        Err(_) => bind(Ipv4Addr::UNSPECIFIED.into()).await,
    }
}

async fn accept(mut listener: Listener, member: Arc<Member>) {
    while let Ok(accepted) = listener.accept().await {
        let Accepted::Session(new) = accepted else { continue };
        let member = member.clone();
        tokio::spawn(async move {
            if let Err(error) = serve_root(member, new.start()).await {
                tracing::debug!(%error, "a session to the root");
            }
        });
    }
}

/// How a session to a host ended, other than by an error.
enum Ended {
    /// It was told to leave.
    Left,
    /// It will not take part any more.
    Failed(String),
}

/// Has one host take part, and invites it again when it was lost.
async fn attend(shared: Arc<Shared>, host: usize) {
    let mut over = shared.over.subscribe();
    while !*over.borrow() {
        let was_there = |s: &Seat| matches!(s.state, SeatState::Joined | SeatState::Lost { was_there: true, .. });
        match attend_once(&shared, host).await {
            Ok(Ended::Left) => return,
            Ok(Ended::Failed(why)) => return shared.change(host, |s| s.state = SeatState::Failed(why)),
            Err(error) if is_final(&error) => {
                return shared.change(host, |s| s.state = SeatState::Failed(error.to_string()));
            }
            Err(error) => shared.change(host, |s| {
                let why = error.to_string();
                s.state = match &s.state {
                    // The time counts from when it was last there.
                    SeatState::Lost { was_there, since, .. } => {
                        SeatState::Lost { why, was_there: *was_there, since: *since }
                    }
                    _ => SeatState::Lost { why, was_there: was_there(s), since: Instant::now() },
                };
            }),
        }
        let _ = tokio::time::timeout(RETRY_EVERY, over.wait_for(|over| *over)).await;
    }
}

/// Whether trying again is of no use.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::TokenMissing | Error::TokenWrong | Error::Version { .. } | Error::NotMultirail { .. })
}

async fn attend_once(shared: &Arc<Shared>, host: usize) -> Result<Ended> {
    let config = Config { give_up_after: SESSION_GIVES_UP_AFTER, ..shared.options.config.clone() };
    let mut session = Session::connect(&shared.given[host].address, config).await?;
    let local = session.rails().first().and_then(|r| r.addresses).map(|(local, _)| local.ip());
    let invite = shared.invite(host, local.unwrap_or(Ipv4Addr::LOCALHOST.into()));
    service::send(&mut session, &Request::Multicast(InviteRequest { group: shared.id })).await?;
    let (sender, receiver) = session.split();
    send_body(sender, &invite).await?;
    let mut over = shared.over.subscribe();
    let hear = async {
        loop {
            let said = tokio::time::timeout(SILENCE, receive_body(receiver, MAX_STATUS_BYTES)).await;
            match said.map_err(|_| silent())?? {
                FromHost::Joined => shared.change(host, |s| s.state = SeatState::Joined),
                FromHost::Status(status) => shared.change(host, |s| s.status = status),
                FromHost::Refused(why) | FromHost::Failed(why) => return Ok::<_, Error>(Ended::Failed(why)),
            }
        }
    };
    let mut below = shared.over_below.subscribe();
    let tell = async {
        while below.changed().await.is_ok() {
            let number = *below.borrow_and_update();
            send_body(sender, &ToHost::Over(number)).await?;
        }
        Ok::<_, Error>(Ended::Left)
    };
    let ended = tokio::select! {
        ended = hear => ended?,
        ended = tell => ended?,
        _ = over.wait_for(|over| *over) => Ended::Left,
    };
    if matches!(ended, Ended::Left) {
        send_body(session.split().0, &ToHost::Leave).await?;
    }
    let _ = tokio::time::timeout(LEAVE_TIMEOUT, session.close()).await;
    Ok(ended)
}

fn silent() -> Error {
    Error::Io { what: "waiting for the host to tell how far it is", source: std::io::ErrorKind::TimedOut.into() }
}

//! The driver of the coordinator: invites the hosts and tells the state machine what they report.

mod attend;
mod grouping;
mod invite;
mod join;
mod listener;
mod roster;
mod shared;
mod survey;

use super::driver::{MemberDriver, MemberSetup};
use super::error::BroadcastError;
use super::joining::Joining;
use super::options::{BroadcastHost, Options};
use super::summary::{HostSummary, Summary};
use super::ticket::{Ticket, TicketSecret};
use crate::pass::{Pass, Passes};
use crate::store::Store;
use crate::store::StoreError;
use grouping::Grouping;
use invite::invite;
use listener::{accept, listen};
use multirail_net::rails::local_ports;
use multirail_proto::multicast::coordinator::{Coordinator, CoordinatorConfig};
use multirail_proto::multicast::member::Membership;
use multirail_proto::multicast::{Members, Method};
use roster::Roster;
use shared::{Shared, micros};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

/// How often the driver asks the machine whether a broadcast is over while no host reports.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Less data than this has arrived before its way could change.
const MIN_SURVEY_BYTES: u64 = 4 << 20;
/// The time limit for hosts to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The coordinator of a group.
pub(super) struct CoordinatorDriver {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    hosts: JoinSet<()>,
    survey: Option<JoinHandle<()>>,
    began: Instant,
}

impl CoordinatorDriver {
    /// Begins a group and invites `hosts`. `destination`: below their served folders; `None`: into
    /// memory. `manifest`: the id of the only manifest there will be.
    pub(super) async fn begin(
        hosts: &[BroadcastHost],
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
        if options.joining.is_some() && options.method != Method::Adaptive {
            let why = format!("hosts join only broadcasts by method {}, not {}", Method::Adaptive, options.method);
            return Err(BroadcastError::Hosts(why));
        }
        let listener = listen(hosts, options.joining.is_some(), options.config.clone()).await?;
        let (id, mut seed) = (random(), options.seed);
        let seed = *seed.get_or_insert_with(|| u64::from_le_bytes(random()));
        let port = listener.address().port();
        let roster = Roster::new(root_cluster, hosts);
        let key = options.config.identity.public_key();
        let member = MemberDriver::begin(MemberSetup {
            id,
            hosts: roster.table(),
            me: 0,
            members: members.clone(),
            method: options.method,
            bandwidths: options.bandwidths.clone(),
            seed,
            config: options.config.clone(),
            passes: Passes { root: key, group: id, own: Pass::issue(&options.config.identity, &id, 0, key) },
            manifest,
            joins_later: false,
            open: Box::new(|_, _| Err(StoreError::Destination("the root receives nothing".to_owned()))),
            inbox: None,
        });
        let machine = CoordinatorConfig {
            members: Arc::new(members),
            wait_for_lost_us: micros(options.wait_for_lost),
            give_up_after_us: micros(options.give_up_after),
        };
        let began = Instant::now();
        let shared = Arc::new(Shared {
            id,
            member,
            roster: Mutex::new(roster),
            options: options.clone(),
            seed,
            port,
            destination,
            manifest,
            began,
            machine: Mutex::new(Coordinator::new(machine, 0)),
            news: watch::Sender::new(0),
            over: watch::Sender::new(false),
            over_below: watch::Sender::new(0),
            survey: Mutex::new(None),
            survey_news: Notify::new(),
            grouping: Grouping::new(),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        let mut tasks = JoinSet::new();
        for host in 0..hosts.len() {
            tasks.spawn(invite(shared.clone(), host));
        }
        Ok(Self { shared, accepting, hosts: tasks, survey: None, began })
    }

    /// Waits until every host has answered or failed. Waits for late hosts only as long as answers
    /// keep coming.
    pub(super) async fn gather(&self) {
        let mut news = self.shared.news.subscribe();
        loop {
            let begins_at_us = self.shared.machine().begins_at_us();
            let Some(begins_at_us) = begins_at_us else {
                let _ = news.changed().await;
                continue;
            };
            let wait = Duration::from_micros(begins_at_us.saturating_sub(self.shared.now_us()));
            if wait.is_zero() || tokio::time::timeout(wait, news.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Broadcasts the data of `store` as number `transfer` of the group. Waits for every host that
    /// can get it.
    pub(super) async fn broadcast(
        &mut self,
        transfer: u32,
        store: Arc<dyn Store>,
        data: Vec<u8>,
    ) -> Result<Summary, BroadcastError> {
        let (pieces, inline) = (store.manifest().pieces(), !data.is_empty());
        let now = Instant::now();
        let (setup, before) =
            (now - self.began, now.saturating_duration_since(self.shared.options.began.unwrap_or(now)));
        self.began = now;
        self.shared.machine().handle_broadcast(self.shared.now_us(), transfer);
        self.shared.start_progress(pieces.total_bytes);
        self.shared.member.broadcast(transfer, store, data);
        if self.shared.options.find_clusters && pieces.total_bytes >= MIN_SURVEY_BYTES {
            let earlier = self.survey.replace(survey::begin(&self.shared));
            earlier.iter().for_each(JoinHandle::abort);
        }
        self.settle().await?;
        if let Some(joining) = self.shared.options.joining.clone() {
            self.seed(&joining).await?;
        }
        let hosts = self.shared.summaries(before);
        let machine = self.shared.machine();
        Ok(Summary {
            total_bytes: pieces.total_bytes,
            piece_bytes: pieces.piece_bytes,
            pieces: if inline { 0 } else { pieces.count() },
            elapsed: elapsed(&hosts),
            hosts,
            root_cluster: machine.members().cluster(0),
            wan_bytes: machine.wan_bytes(),
            prepared: Duration::ZERO,
            setup,
        })
    }

    /// Stays for hosts that join, and until no host is left that could still become complete.
    async fn seed(&self, joining: &Joining) -> Result<(), BroadcastError> {
        joining.begin_seeding();
        let stopped = joining.stopped();
        tokio::pin!(stopped);
        loop {
            let long_enough = async {
                match joining.seed_for() {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stopped => return Ok(()),
                () = long_enough => return Ok(()),
                () = self.unsettled() => {}
            }
            tokio::select! {
                () = &mut stopped => return Ok(()),
                settled = self.settle() => settled?,
            }
        }
    }

    /// Waits until there is a host that could become complete, or this host's part has failed.
    async fn unsettled(&self) {
        let mut news = self.shared.news.subscribe();
        while self.shared.machine().is_settled(self.shared.now_us())
            && !matches!(self.shared.member.membership(), Membership::Failed(_))
        {
            let _ = tokio::time::timeout(LOOK_EVERY, news.changed()).await;
        }
    }

    /// The ticket with which hosts join.
    pub(super) async fn ticket(&self, manifest: [u8; 32], secret: Option<TicketSecret>) -> Ticket {
        let Shared { id, port, options, .. } = &*self.shared;
        let addresses = match &options.advertise {
            Some(advertise) => vec![shared::with_port(advertise, *port)],
            None => own_addresses(*port).await,
        };
        Ticket::new(options.config.identity.public_key(), *id, manifest, secret, addresses)
    }

    /// Waits until no host is left that could still become complete.
    async fn settle(&self) -> Result<(), BroadcastError> {
        let mut news = self.shared.news.subscribe();
        let mut own = self.shared.member.watch();
        loop {
            if let Membership::Failed(why) = self.shared.member.membership() {
                return Err(BroadcastError::Source(why));
            }
            if self.shared.machine().is_settled(self.shared.now_us()) {
                return Ok(());
            }
            tokio::select! {
                _ = news.changed() => {}
                _ = own.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Tells all hosts to forget the transfers below `number`.
    pub(super) fn forget_below(&self, number: u32) {
        self.shared.member.forget_below(number);
        self.shared.over_below.send_replace(number);
    }

    /// Tells all hosts to leave, and ends.
    pub(super) async fn end(mut self) {
        self.shared.over.send_replace(true);
        self.shared.member.leave();
        let all = async { while self.hosts.join_next().await.is_some() {} };
        let links = self.shared.member.links_ended();
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, futures_util::future::join(all, links)).await;
    }
}

impl Drop for CoordinatorDriver {
    fn drop(&mut self) {
        self.accepting.abort();
        self.survey.iter().for_each(JoinHandle::abort);
        self.shared.member.fail("the broadcast was given up".to_owned());
    }
}

/// The time until the last host that was given was complete; without such hosts, the last that joined.
fn elapsed(hosts: &[HostSummary]) -> Duration {
    let given = hosts.iter().filter(|host| !host.has_joined_later).filter_map(|host| host.complete_after).max();
    given.or_else(|| hosts.iter().filter_map(|host| host.complete_after).max()).unwrap_or_default()
}

/// The addresses of this host's ports, with the port of the listener. Without any port, that of loopback.
async fn own_addresses(port: u16) -> Vec<String> {
    let ports = local_ports().await.map(|found| found.ports).unwrap_or_default();
    let mut addresses: Vec<String> = ports.iter().map(|p| SocketAddr::new(p.address, port).to_string()).collect();
    if addresses.is_empty() {
        addresses.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string());
    }
    addresses
}

pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

/// The group of `hosts` and a root in `root_cluster`, which is its first member.
fn members(hosts: &[BroadcastHost], root_cluster: u32) -> Result<Members, BroadcastError> {
    let mut seen = HashSet::new();
    if let Some(twice) = hosts.iter().find(|h| !seen.insert(&h.address)) {
        return Err(BroadcastError::Hosts(format!("host {} is listed twice", twice.address)));
    }
    let cluster_of = std::iter::once(root_cluster).chain(hosts.iter().map(|h| h.cluster)).collect();
    Members::new(cluster_of, 0).map_err(|e| BroadcastError::Hosts(e.to_string()))
}

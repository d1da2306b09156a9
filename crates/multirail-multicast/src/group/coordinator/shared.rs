//! What the coordinator's tasks share.

use super::grouping::Grouping;
use super::roster::Roster;
use crate::group::driver::MemberDriver;
use crate::group::options::Options;
use crate::group::progress::{HostProgress, HostState};
use crate::group::summary::{HostSummary, Outcome};
use crate::pass::Pass;
use crate::wire::{GroupId, Invite, Status, ToHost};
use multirail_net::PublicKey;
use multirail_net::sync::lock;
use multirail_proto::multicast::MemberId;
use multirail_proto::multicast::coordinator::survey::Survey;
use multirail_proto::multicast::coordinator::{Coordinator, InviteState, InvitedHost};
use multirail_proto::multicast::member::TransferStatus;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// The outcome of a host that has left of its own accord.
const LEFT: &str = "it left before it had everything";

pub(super) struct Shared {
    pub id: GroupId,
    pub member: Arc<MemberDriver>,
    /// Locked before the machine and the member.
    pub roster: Mutex<Roster>,
    pub options: Options,
    pub seed: u64,
    pub port: u16,
    pub destination: Option<Vec<u8>>,
    pub manifest: Option<[u8; 32]>,
    /// The zero of the machine's clock: when the first invitation went out.
    pub began: Instant,
    pub machine: Mutex<Coordinator>,
    pub news: watch::Sender<u64>,
    /// Whether hosts are to leave.
    pub over: watch::Sender<bool>,
    /// Transfers below this number are over.
    pub over_below: watch::Sender<u32>,
    /// The survey of the running broadcast.
    pub survey: Mutex<Option<Survey>>,
    /// Tells the survey's task that the survey has news.
    pub survey_news: Notify,
    pub grouping: Grouping,
}

impl Shared {
    pub(super) fn machine(&self) -> MutexGuard<'_, Coordinator> {
        lock(&self.machine)
    }

    pub(super) fn roster(&self) -> MutexGuard<'_, Roster> {
        lock(&self.roster)
    }

    pub(super) fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    pub(super) fn on_joined(&self, host: usize) {
        self.with_survey(|survey, _| survey.handle_joined(host as MemberId + 1));
        self.change(host, |machine, now_us| machine.handle_joined(now_us, host));
    }

    pub(super) fn on_status(&self, host: usize, status: Status) {
        let Status { transfer, held_bytes, resumed_bytes, received_bytes, done: is_done, complaints } = status;
        let status =
            transfer.map(|transfer| TransferStatus { transfer, held_bytes, resumed_bytes, received_bytes, is_done });
        self.change(host, |machine, now_us| machine.handle_status(now_us, host, status, complaints));
    }

    pub(super) fn on_lost(&self, host: usize, why: String) {
        self.with_survey(|survey, now_us| survey.handle_lost(now_us, host as MemberId + 1));
        self.change(host, |machine, now_us| machine.handle_lost(now_us, host, why));
    }

    pub(super) fn on_failed(&self, host: usize, why: String) {
        self.with_survey(|survey, now_us| survey.handle_lost(now_us, host as MemberId + 1));
        self.change(host, |machine, now_us| machine.handle_failed(now_us, host, why));
    }

    pub(super) fn on_left(&self, host: usize) {
        self.with_survey(|survey, now_us| survey.handle_lost(now_us, host as MemberId + 1));
        self.change(host, |machine, now_us| machine.handle_left(now_us, host));
    }

    pub(super) fn on_measured(&self, host: usize, round: u32, rtts_us: &[Option<u32>]) {
        let by = host as MemberId + 1;
        tracing::debug!(by, round, ?rtts_us, "a host has measured");
        self.with_survey(|survey, now_us| survey.handle_measured(now_us, by, round, rtts_us));
    }

    /// Tells the survey of an event, if one is running.
    pub(super) fn with_survey(&self, event: impl FnOnce(&mut Survey, u64)) {
        if let Some(survey) = lock(&self.survey).as_mut() {
            event(survey, self.now_us());
            self.survey_news.notify_one();
        }
    }

    /// Tells the machine of an event at `host`, and the display and the waiting task of its result.
    fn change(&self, host: usize, event: impl FnOnce(&mut Coordinator, u64)) {
        let mut machine = self.machine();
        event(&mut machine, self.now_us());
        let wan_bytes = machine.wan_bytes();
        let state = shown(&machine.hosts()[host]);
        let held_bytes = machine.hosts()[host].held_bytes();
        drop(machine);
        self.options.progress.update(|snapshot| {
            if let Some(shown) = snapshot.hosts.get_mut(host) {
                (shown.state, shown.held_bytes) = (state, held_bytes);
                snapshot.wan_bytes = wan_bytes;
            }
        });
        self.news.send_modify(|count| *count += 1);
    }

    pub(super) fn start_progress(&self, total_bytes: u64) {
        let roster = self.roster();
        let machine = self.machine();
        let members = machine.members();
        let progress = (1..).zip(machine.hosts()).map(|(member, invited)| HostProgress {
            address: roster.address(member).to_owned(),
            cluster: members.cluster(member),
            held_bytes: 0,
            state: shown(invited),
        });
        self.options.progress.start(self.options.began, total_bytes, progress.collect(), members.clusters().len());
    }

    /// The outcome of each host. The broadcast began `before` after the command.
    pub(super) fn summaries(&self, before: Duration) -> Vec<HostSummary> {
        let own_complaints = self.member.complaints();
        let roster = self.roster();
        let machine = self.machine();
        let give_up_after = self.options.give_up_after;
        let summary = |(index, invited): (usize, &InvitedHost)| {
            let member = index as MemberId + 1;
            let others = machine.complaints_about(member);
            let others = others.map(|(by, what)| format!("{}: {what}", roster.address(by as MemberId + 1)));
            let own = own_complaints.iter().filter(|(whom, _)| *whom == member);
            let own = own.map(|(_, what)| format!("this host: {what}"));
            HostSummary {
                address: roster.address(member).to_owned(),
                has_joined_later: roster.has_joined_later(member),
                cluster: machine.members().cluster(member),
                outcome: match invited.state() {
                    _ if machine.is_complete(index) => Outcome::Complete,
                    InviteState::Failed(why) | InviteState::Lost { why, .. } => Outcome::Failed(why.clone()),
                    InviteState::Pending => Outcome::Failed("it did not answer in time".to_owned()),
                    InviteState::Left => Outcome::Failed(LEFT.to_owned()),
                    InviteState::Joined => Outcome::Failed(format!("nothing came there for {give_up_after:?}")),
                },
                resumed_bytes: invited.status().map_or(0, |status| status.resumed_bytes),
                held_bytes: invited.held_bytes(),
                complete_after: invited.complete_after_us().map(|us| before + Duration::from_micros(us)),
                complaints: others.chain(own).collect(),
            }
        };
        machine.hosts().iter().enumerate().map(summary).collect()
    }

    /// The clusters of all hosts, with the hosts that joined.
    pub(super) fn regrouped(&self) -> ToHost {
        let roster = self.roster();
        let clusters = self.machine().clusters().to_vec();
        ToHost::Regroup { clusters, first: roster.first() as MemberId, joined: roster.since(roster.first()) }
    }

    /// The invitation for a host with this key. Its session with this host leaves from the address
    /// `local`.
    pub(super) fn invite(&self, host: usize, local: IpAddr, key: PublicKey) -> Invite {
        let mut hosts = self.roster().table();
        hosts[0].address = match &self.options.advertise {
            Some(address) => with_port(address, self.port),
            None => SocketAddr::new(local, self.port).to_string(),
        };
        let me = host as MemberId + 1;
        Invite {
            hosts,
            me,
            root: 0,
            method: self.options.method,
            bandwidths: self.options.bandwidths.clone(),
            destination: self.destination.clone(),
            sync: self.options.sync,
            manifest: self.manifest,
            seed: self.seed,
            pass: Pass::issue(&self.options.config.identity, &self.id, me, key),
        }
    }
}

/// The state of a host as the display has it.
fn shown(host: &InvitedHost) -> HostState {
    match host.state() {
        _ if host.status().is_some_and(|status| status.is_done) => HostState::Complete,
        InviteState::Pending => HostState::Waiting(None),
        InviteState::Joined => HostState::Running,
        InviteState::Left => HostState::Failed(LEFT.to_owned()),
        InviteState::Lost { why, .. } => HostState::Waiting(Some(why.clone())),
        InviteState::Failed(why) => HostState::Failed(why.clone()),
    }
}

/// Microseconds; the largest number for a longer time.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// An address that is given with or without a port.
pub(super) fn with_port(address: &str, port: u16) -> String {
    match address.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) if address.parse::<SocketAddr>().is_err() && !has_port(address) => format!("{address}:{port}"),
        Err(_) => address.to_owned(),
    }
}

fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

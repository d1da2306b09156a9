//! A server's part: accepts invitations, and brings sessions of members to their groups.

use super::driver::{MemberDriver, MemberSetup, OpenStore};
use super::inbox::Inbox;
use super::measuring::Measuring;
use crate::link;
use crate::pass::Passes;
use crate::store::{Destination, Manifest, TreeOptions, TreeStore};
use crate::store::{Store, StoreError};
use crate::wire::{
    FromHost, GroupId, Invite, InviteRequest, MAX_INVITE_BYTES, PeerHello, PeerReply, ToHost, receive_body, send_body,
};
use multirail_net::error::{Error, Result};
use multirail_net::permissions::{Permissions, Right};
use multirail_net::quota::Quota;
use multirail_net::record::Notes;
use multirail_net::sync::lock;
use multirail_net::{Config, PublicKey, Session, request};
use multirail_proto::multicast::Members;
use multirail_tree::root::Root;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;

/// The most groups that a server takes part in at a time.
pub(crate) const MAX_GROUPS: usize = 64;
/// How often a host reports its progress.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// How long a session of a member waits for its group, since the invitation may be on its way.
const GROUP_PATIENCE: Duration = Duration::from_secs(3);
/// How often it looks for the group.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time limit for links to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The groups that a server, or a receiving program, takes part in.
pub(crate) struct Registry {
    config: Config,
    take: Take,
    groups: Mutex<HashMap<GroupId, Arc<MemberDriver>>>,
    /// What the host last reported of groups that are over, the latest last.
    ended: Mutex<VecDeque<(GroupId, FromHost)>>,
}

/// Where received data goes.
enum Take {
    /// Files, below this folder.
    Files(PathBuf),
    /// Memory, for the program.
    Memory(Inbox),
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    /// The registry of a server for the folder `root`. Sessions to members are made with `config`.
    pub(crate) fn new(root: &Path, config: Config) -> Self {
        Self { take: Take::Files(root.to_owned()), config, groups: Mutex::default(), ended: Mutex::default() }
    }

    /// The registry of a program that receives into memory.
    pub(super) fn of_memory(inbox: Inbox, config: Config) -> Self {
        Self { take: Take::Memory(inbox), config, groups: Mutex::default(), ended: Mutex::default() }
    }

    fn find(&self, id: &GroupId) -> Option<Arc<MemberDriver>> {
        self.lock().get(id).cloned()
    }

    /// The group is over for this host, which last reported `report`.
    pub(crate) fn forget(&self, id: &GroupId, report: FromHost) {
        let mut ended = lock(&self.ended);
        if ended.len() >= MAX_GROUPS {
            ended.pop_front();
        }
        ended.push_back((*id, report));
        self.lock().remove(id);
    }

    /// The last report of a group that this host has left complete.
    fn completed(&self, id: &GroupId) -> Option<FromHost> {
        let is_done = |report: &FromHost| matches!(report, FromHost::Status(status) if status.done);
        lock(&self.ended)
            .iter()
            .find(|(ended, report)| ended == id && is_done(report))
            .map(|(_, report)| report.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GroupId, Arc<MemberDriver>>> {
        lock(&self.groups)
    }

    /// The group of an invitation from a root with this key, and whether it begins with it. `joins_later`:
    /// the broadcast may have begun without this host.
    pub(super) fn join(
        &self,
        id: GroupId,
        invite: Invite,
        (root, permissions): (PublicKey, &Permissions),
        joins_later: bool,
    ) -> Result<(Arc<MemberDriver>, bool), String> {
        let cluster_of = invite.hosts.iter().map(|h| h.cluster).collect();
        let members = Members::new(cluster_of, invite.root).map_err(|e| e.to_string())?;
        if !members.contains(invite.me) || invite.me == invite.root {
            return Err(format!("an invitation for host {} of {}", invite.me, members.count()));
        }
        let (open, inbox): (Box<OpenStore>, _) = match (&self.take, invite.destination) {
            (Take::Files(root), Some(destination)) => {
                let options = TreeOptions { sync: invite.sync };
                (Box::new(open_below(root, permissions, destination, options)), None)
            }
            (Take::Memory(inbox), None) => {
                let inbox = Arc::new(inbox.of_group());
                let opened = inbox.clone();
                (Box::new(move |number, manifest| opened.open(number, manifest)), Some(inbox))
            }
            (Take::Files(_), None) => {
                return Err("a server takes files; data for memory goes to a program that receives it".to_owned());
            }
            (Take::Memory(_), Some(_)) => return Err("here is a program that receives memory, not files".to_owned()),
        };
        let mut groups = self.lock();
        if let Some(member) = groups.get(&id) {
            // The session to the coordinator was lost, and the coordinator is back.
            return Ok((member.clone(), false));
        }
        if groups.len() >= MAX_GROUPS {
            return Err(format!("this server takes part in {MAX_GROUPS} broadcasts; try again later"));
        }
        let member = MemberDriver::begin(MemberSetup {
            id,
            hosts: invite.hosts,
            me: invite.me,
            members,
            method: invite.method,
            bandwidths: invite.bandwidths,
            seed: invite.seed,
            config: self.config.clone(),
            passes: Passes { root, group: id, own: invite.pass },
            manifest: invite.manifest,
            joins_later,
            open,
            inbox,
        });
        groups.insert(id, member.clone());
        Ok((member, true))
    }
}

/// Opens stores of files at `destination` below `root`.
fn open_below(
    root: &Path,
    permissions: &Permissions,
    destination: Vec<u8>,
    options: TreeOptions,
) -> impl Fn(u32, Arc<Manifest>) -> Result<Arc<dyn Store>, StoreError> + Send + Sync + use<> {
    let (root, permissions) = (Root::new(root, permissions.below()), permissions.clone());
    move |_, manifest| {
        let costs = manifest.entries().iter().map(|entry| Quota::cost(entry.total_bytes()));
        let reserved = permissions.reserve(costs.fold(0, u64::saturating_add)).map_err(StoreError::Destination)?;
        let destination = Destination { root: &root, path: Path::new(OsStr::from_bytes(&destination)) };
        Ok(Arc::new(TreeStore::open(manifest, destination, options)?.counting(reserved)))
    }
}

/// Takes part in a group until it is over. The group lives in the runtime of the caller.
pub(crate) async fn serve_invite(
    registry: &Registry,
    session: &mut Session,
    request: InviteRequest,
    notes: &Notes,
) -> Result<()> {
    notes.operation("receive");
    let invite: Invite = receive_body(session.split().1, MAX_INVITE_BYTES).await?;
    if let Some(destination) = &invite.destination {
        notes.path(destination);
    }
    if let Some(report) = registry.completed(&request.group) {
        // The coordinator was lost, and this host went on alone until it and its peers had everything.
        send_body(session.split().0, &FromHost::Joined).await?;
        send_body(session.split().0, &report).await?;
        return Ok(());
    }
    let permissions = &session.client().permissions;
    // A host offers what it has of the data to all members, also to those that know nothing but its hash.
    let allowed = permissions.check(Right::Write).and_then(|()| permissions.check(Right::Read));
    let joined = allowed.and_then(|()| registry.join(request.group, invite, (session.peer().key, permissions), false));
    let (member, begins) = match joined {
        Ok(joined) => joined,
        Err(why) => {
            notes.refused(&why);
            return request::send(session, &FromHost::Refused(why)).await;
        }
    };
    let mut never: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(std::future::pending());
    let attended = attend(session, &member, &mut never).await;
    if begins {
        if let Err(error) = &attended {
            tracing::debug!(%error, "the coordinator is lost");
            go_on_alone(&member).await;
        }
        member.leave();
        let _ = tokio::time::timeout(END_TIMEOUT, member.links_ended()).await;
        note_outcome(notes, &member);
        registry.forget(&request.group, member.report());
    }
    attended
}

/// Notes what the host got, for the server's records.
fn note_outcome(notes: &Notes, member: &MemberDriver) {
    match member.report() {
        FromHost::Status(status) => {
            notes.elsewhere(0, status.received_bytes.iter().map(|(_, bytes)| bytes).sum());
            if !status.done {
                notes.failure("the broadcast ended before this host had everything");
            }
        }
        FromHost::Failed(why) => notes.failure(&why),
        _ => {}
    }
}

/// Reports progress to the coordinator and follows its orders until it says leave. When `enough` is over, this
/// host leaves of its own accord.
pub(super) async fn attend(
    session: &mut Session,
    member: &Arc<MemberDriver>,
    enough: &mut Pin<Box<dyn Future<Output = ()> + Send + '_>>,
) -> Result<()> {
    let (sender, receiver) = session.split();
    send_body(sender, &FromHost::Joined).await?;
    let (told, mut orders) = mpsc::channel(1);
    let listen = async {
        loop {
            let order: ToHost = receive_body(receiver, MAX_INVITE_BYTES).await?;
            let _ = told.send(order).await;
        }
    };
    let mut listen: Pin<Box<dyn Future<Output = Result<()>> + Send>> = Box::pin(listen);
    let mut changed = member.watch();
    let mut last = None;
    let mut measuring = Measuring::default();
    let mut tick = tokio::time::interval(STATUS_EVERY);
    loop {
        let report = member.report();
        let news = match &report {
            FromHost::Status(s) => Some((s.transfer.filter(|_| s.done), s.complaints.len())),
            _ => None,
        };
        if news.is_none() || last != Some(news) {
            send_body(sender, &report).await?;
            last = Some(news);
        }
        if news.is_none() {
            return Ok(());
        }
        tokio::select! {
            ended = &mut listen => return ended,
            Some(order) = orders.recv() => match order {
                ToHost::Leave => return Ok(()),
                ToHost::Over(below) => member.forget_below(below),
                ToHost::Abort(why) => member.fail(why),
                ToHost::Measure { round, targets } => measuring.begin(member, round, &targets)?,
                ToHost::Regroup { clusters, first, joined } => {
                    if !member.regroup(clusters, first, &joined) {
                        return Err(Error::Protocol("clusters of another group".to_owned()));
                    }
                }
            },
            measured = measuring.end() => send_body(sender, &measured).await?,
            () = &mut *enough => {
                send_body(sender, &member.report()).await?;
                return send_body(sender, &FromHost::Leaving).await;
            }
            Ok(()) = changed.changed() => {}
            _ = tick.tick() => last = None,
        }
    }
}

/// Goes on without a coordinator until this host and its peers are complete, or nothing arrives any
/// more.
async fn go_on_alone(member: &Arc<MemberDriver>) {
    let mut changed = member.watch();
    while !member.may_end_alone() {
        let _ = tokio::time::timeout(STATUS_EVERY, changed.changed()).await;
    }
}

/// Brings a session of a member to its group, which drives it from then on.
pub(crate) async fn serve_peer(
    registry: &Registry,
    session: Session,
    address: SocketAddr,
    hello: PeerHello,
) -> Result<()> {
    let Some((member, session)) = find_member(registry, session, &hello).await? else { return Ok(()) };
    let moving = session.into_new(address);
    let runtime = member.runtime().clone();
    runtime.spawn(async move {
        match moving.start_moved() {
            Ok(session) => link::admit(member, session, hello).await,
            Err(error) => tracing::warn!(%error, "a member's session"),
        }
    });
    Ok(())
}

/// As [`serve_peer`], in the group's own runtime.
pub(super) async fn serve_peer_here(registry: &Registry, session: Session, hello: PeerHello) -> Result<()> {
    if let Some((member, session)) = find_member(registry, session, &hello).await? {
        link::admit(member, session, hello).await;
    }
    Ok(())
}

/// This host's part in the group of a member's session. Without such a group, the member is told
/// so.
async fn find_member(
    registry: &Registry,
    mut session: Session,
    hello: &PeerHello,
) -> Result<Option<(Arc<MemberDriver>, Session)>> {
    let until = tokio::time::Instant::now() + GROUP_PATIENCE;
    loop {
        match registry.find(&hello.group) {
            Some(member) => return Ok(Some((member, session))),
            None if tokio::time::Instant::now() < until => tokio::time::sleep(LOOK_EVERY).await,
            None => {
                request::send(&mut session, &PeerReply::UnknownGroup).await?;
                session.close().await?;
                return Ok(None);
            }
        }
    }
}

//! What is looked after without an occasion: timers of nodes, links on which nothing comes, manifests that do not come.

use super::super::wire::Item;
use super::{Core, Member, State};
use multirail_proto::multicast::{Input, MemberId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A host that knows nothing of any transfer for this long asks others, again and again.
const ASK_EVERY: Duration = Duration::from_millis(1500);
/// A link on which nothing comes for this long is dead: the peer's system may be there, but its process hangs.
const LINK_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a host says that it is well.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// A peer that was asked for something and sends nothing of anything for this long is not well. Tests cannot wait so long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 20 });

impl Member {
    /// Asks somebody for what goes on: the hosts nearby first, so that it does not cross the networks between clusters again.
    fn ask(self: &Arc<Self>) {
        let mut core = self.lock();
        if !core.transfers.is_empty() || core.state != State::Member || self.me == self.members.root() {
            return;
        }
        core.asked += 1;
        core.links.values_mut().for_each(|l| l.push(Item::Ask));
        let near: Vec<MemberId> = self.members.mob(self.me).iter().copied().filter(|m| *m != self.me).collect();
        let turn = core.asked as usize;
        let at = (self.seed as usize).wrapping_add(self.me as usize + turn);
        let whom = if turn.is_multiple_of(3) || near.is_empty() { self.members.root() } else { near[at % near.len()] };
        self.connect(&mut core, whom);
    }

    /// Tells all peers that this host is well.
    fn say_alive(&self) {
        self.lock().links.values_mut().for_each(|l| l.push(Item::Alive));
    }

    /// Ends links to peers that do not answer: at first it may be that they hang, the second time they do not count any more.
    fn end_silent_links(self: &Arc<Self>) {
        let silent: Vec<(MemberId, u64, bool)> = {
            let mut core = self.lock();
            let Core { links, transfers, silent, .. } = &mut *core;
            let answers = |peer: MemberId| !transfers.values().any(|t| t.silence(peer) > ANSWER_TIMEOUT);
            let found = links.iter().filter(|(peer, link)| link.silence() > LINK_TIMEOUT || !answers(**peer));
            found.map(|(peer, link)| (*peer, link.number(), !silent.insert(*peer))).collect()
        };
        for (peer, link, again) in silent {
            self.link_down(peer, link, "it is joined to this host, and sends nothing", again);
        }
    }
}

/// Tells nodes the time, and asks for manifests that do not come.
pub(super) async fn wake_nodes(member: Arc<Member>) {
    let (mut asked, mut alive) = (Instant::now(), Instant::now());
    loop {
        let now_us = member.now_us();
        let (due, over) = {
            let mut core = member.lock();
            // What is driven from here on is looked at below.
            core.timer_at_us = Some(0);
            let wakes = || core.transfers.iter().filter_map(|(n, t)| Some((*n, t.node.as_ref()?.wake_at_us()?)));
            let due: Vec<u32> = wakes().filter(|(_, at)| *at <= now_us).map(|(n, _)| n).collect();
            (due, core.state != State::Member)
        };
        if over {
            return;
        }
        for number in &due {
            member.drive(&mut member.lock(), *number, Input::Wake);
        }
        if asked.elapsed() >= ASK_EVERY {
            asked = Instant::now();
            member.end_silent_links();
            if alive.elapsed() >= ALIVE_EVERY {
                alive = Instant::now();
                member.say_alive();
            }
            member.ask();
        }
        let next = {
            let mut core = member.lock();
            core.timer_at_us = core.transfers.values().filter_map(|t| t.node.as_ref()?.wake_at_us()).min();
            core.timer_at_us
        };
        // A node that wants to be woken at once, again and again, shall not keep the others from working.
        let least = if due.is_empty() { Duration::ZERO } else { Duration::from_millis(1) };
        let wait = next.map_or(ASK_EVERY, |at| Duration::from_micros(at.saturating_sub(member.now_us())));
        let wait = wait.clamp(least, ASK_EVERY);
        let _ = tokio::time::timeout(wait, member.timer.notified()).await;
    }
}

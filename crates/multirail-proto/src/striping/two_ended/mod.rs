//! `two-ended`: pairs of channels work from both ends of a partition until they meet, and free
//! pairs help busy ones (Enhanced MuniSocket, sections 4.1 and 5.1).
//!
//! A channel is the paper's thread. These are its states within a message, each with its
//! predecessors:
//!
//! - *busy* (from the beginning, or after *free*): it has an end of a partition with unsent
//!   fragments, and claims from there.
//! - *free* (after *busy*, or on joining): its partition is exhausted. Both channels of a pair
//!   become free when they meet. The first that asks takes both to the busy partition with the most
//!   unsent fragments, so both become *busy* again. With no unsent fragment they stay free: the
//!   message is claimed.
//! - *lost* (after either): its partner continues alone. The next free channels take over a
//!   partition that both have left.
//!
//! Choices where the paper leaves room:
//!
//! - **Odd number of channels** ("adjusted accordingly in a minor way"): the slowest channel has a
//!   partition for itself. Pairs balance themselves and a single channel does not, so pairs should
//!   have as much as possible. In dividing, a missing partner counts as the least busy of all, with
//!   a contribution of 0. So the slower channel of a free pair joins a single busy channel, and the
//!   faster takes the rest alone. A single free channel joins the less busy of a pair. Two single
//!   channels become an ordinary pair, undivided. The same rules serve pairs that have lost a
//!   channel, and joiners.
//! - **C(t)**: the fragments that t has claimed in this message, all halved whenever a partition is
//!   divided. Every channel is busy from the beginning, so counts compare although the present
//!   parts began at different moments. The halving makes them the "recent" contribution of equation
//!   (3).
//! - **Equation (4)** is truncated as in the paper, then limited so that no part is empty. A part
//!   without fragments would free its pair at once, for another two *Start*s. Without
//!   contributions, the parts are equal.
//! - **One unsent fragment** cannot be divided: the free channel that asks sends it.
//!
//! The paper's status array (one lock per fragment) has no counterpart. One caller owns the
//! `Striping`, so claims are made one at a time, and a partition's two ends show which fragments
//! are claimed.

use super::equal_partition::MAX_HEADER_RUN_BYTES;
use super::run::{Direction, Framing, Next, Run};
use super::scheme::Scheme;
use super::view::{Channel, ChannelView};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct TwoEnded {
    total_bytes: u64,
    fragment_bytes: u64,
    unclaimed_bytes: u64,
    partitions: Vec<Partition>,
    /// By channel; `None`: lost, or has not asked since it joined.
    members: Vec<Option<Member>>,
    /// Whether the one empty run that announces an empty message is still to be claimed.
    announce: bool,
}

/// Contiguous fragments and their channels. There are as many as pairs; a division uses the place
/// of the free pair's partition.
#[derive(Debug, Clone, Default)]
struct Partition {
    /// Unclaimed fragments, counted from 0.
    unsent: Range<u64>,
    /// The channel that works from left to right.
    incremental: Option<Channel>,
    /// The channel that works from right to left.
    decremental: Option<Channel>,
}

/// The state of a channel, which is the paper's thread.
#[derive(Debug, Clone)]
struct Member {
    partition: usize,
    direction: Direction,
    /// Whether the receiver knows the position: false until the first fragment after each move.
    started: bool,
    /// The paper's C(t).
    contribution: f64,
}

impl TwoEnded {
    pub(super) fn new(total_bytes: u64, fragment_bytes: u64, channels: &[ChannelView]) -> Self {
        let fragment_bytes = fragment_bytes.min(MAX_HEADER_RUN_BYTES);
        let mut this = Self {
            total_bytes,
            fragment_bytes,
            unclaimed_bytes: total_bytes,
            partitions: Vec::with_capacity(channels.len().div_ceil(2)),
            members: vec![None; channels.len()],
            announce: total_bytes == 0,
        };
        let rates = rates(channels);
        let total_rate: f64 = rates.iter().sum();
        let fragments = total_bytes.div_ceil(fragment_bytes);
        let (mut start, mut rate) = (0, 0.0);
        for (incremental, decremental) in pairs(channels, &rates) {
            rate += rates[incremental] + decremental.map_or(0.0, |c| rates[c]);
            let end = ((fragments as f64 * rate / total_rate).round() as u64).clamp(start, fragments);
            this.partitions.push(Partition { unsent: start..end, ..Partition::default() });
            let partition = this.partitions.len() - 1;
            this.place(Some(incremental), partition, Direction::Increment);
            this.place(decremental, partition, Direction::Decrement);
            start = end;
        }
        // The last pair's part ends with the message, whatever rounding did; with all channels down
        // it has no channel.
        match this.partitions.last_mut() {
            Some(last) => last.unsent.end = fragments,
            None => this.partitions.push(Partition { unsent: 0..fragments, ..Partition::default() }),
        }
        this
    }

    /// Gives `channel` (if there is one) an end of a partition. A *Start* announces its next
    /// fragment.
    fn place(&mut self, channel: Option<Channel>, partition: usize, direction: Direction) {
        match direction {
            Direction::Increment => self.partitions[partition].incremental = channel,
            Direction::Decrement => self.partitions[partition].decremental = channel,
        }
        if let Some(channel) = channel {
            let contribution = self.contribution(Some(channel)).unwrap_or(0.0);
            self.members[channel] = Some(Member { partition, direction, started: false, contribution });
        }
    }

    /// C(t); `None` for a missing partner, which orders below all channels.
    fn contribution(&self, channel: Option<Channel>) -> Option<f64> {
        Some(self.members[channel?].as_ref()?.contribution)
    }

    /// Adds a channel that joins after the message began: free, with the mean of the others'
    /// contributions.
    fn join(&mut self, channel: Channel) {
        if self.members.len() <= channel {
            self.members.resize(channel + 1, None);
        }
        let (sum, count) = self.members.iter().flatten().fold((0.0, 0), |(s, n), m| (s + m.contribution, n + 1));
        let vacant = self.partitions.iter().position(|p| p.unsent.is_empty() && p.crew() == 0);
        let partition = vacant.unwrap_or_else(|| {
            self.partitions.push(Partition::default());
            self.partitions.len() - 1
        });
        self.place(Some(channel), partition, Direction::Increment);
        if let Some(member) = &mut self.members[channel] {
            member.contribution = sum / f64::max(f64::from(count), 1.0);
        }
    }

    /// First greedy strategy: the partition with the most unsent fragments.
    fn busiest(&self) -> Option<usize> {
        let busy = (0..self.partitions.len()).filter(|&p| !self.partitions[p].unsent.is_empty());
        // The first of equals, so that only the order of requests decides.
        busy.rev().max_by_key(|&p| self.partitions[p].fragments())
    }

    /// Moves the channels of the exhausted partition `free` to the partition `busy`, which has two
    /// or more unsent fragments. Then each of them has an end of a partition with at least one.
    fn help(&mut self, free: usize, busy: usize) {
        match (self.partitions[free].crew(), self.partitions[busy].crew()) {
            (_, 0) => self.take_over(free, busy),
            (1, 1) => self.make_a_pair(free, busy),
            _ => self.divide(free, busy),
        }
        for member in self.members.iter_mut().flatten() {
            member.contribution /= 2.0;
        }
    }

    /// `busy` has lost its channels: the free ones take it over.
    fn take_over(&mut self, free: usize, busy: usize) {
        let unsent = std::mem::take(&mut self.partitions[busy].unsent);
        let Partition { incremental, decremental, .. } = self.partitions[free];
        self.partitions[free].unsent = unsent;
        self.place(incremental, free, Direction::Increment);
        self.place(decremental, free, Direction::Decrement);
    }

    /// A single free channel takes the free end of a single busy channel's partition.
    fn make_a_pair(&mut self, free: usize, busy: usize) {
        let Partition { incremental, decremental, .. } = std::mem::take(&mut self.partitions[free]);
        let helper = incremental.or(decremental);
        let end = match self.partitions[busy].incremental {
            None => Direction::Increment,
            Some(_) => Direction::Decrement,
        };
        self.place(helper, busy, end);
    }

    /// Second and third greedy strategy. `busy` becomes the left part, `free` the right part.
    fn divide(&mut self, free: usize, busy: usize) {
        let Partition { unsent, incremental: t_il, decremental: t_dr } = self.partitions[busy].clone();
        let Partition { incremental, decremental, .. } = self.partitions[free];

        // The less busy of the busy pair joins the busier of the free pair, and vice versa. Equals
        // keep their directions.
        let (busier, slower) = match self.contribution(incremental) >= self.contribution(decremental) {
            true => (incremental, decremental),
            false => (decremental, incremental),
        };
        let (t_dl, t_ir) = match self.contribution(t_dr) <= self.contribution(t_il) {
            true => (slower, busier),
            false => (busier, slower),
        };

        let sum = |a, b| self.contribution(a).unwrap_or(0.0) + self.contribution(b).unwrap_or(0.0);
        let (left, right) = (sum(t_il, t_dl), sum(t_ir, t_dr));
        let share = if left + right > 0.0 { left / (left + right) } else { 0.5 };
        let fragments = unsent.end - unsent.start;
        // Equations (4) to (9); `middle` is the paper's P(t_ir), and P(t_dl) is the one before.
        let middle = unsent.start + ((fragments as f64 * share) as u64).clamp(1, fragments - 1);

        self.partitions[busy] = Partition { unsent: unsent.start..middle, incremental: t_il, decremental: None };
        self.partitions[free] = Partition { unsent: middle..unsent.end, incremental: None, decremental: t_dr };
        if let Some(member) = t_dr.and_then(|c| self.members[c].as_mut()) {
            // The channel continues without a *Start*; only its part moves in the table.
            member.partition = free;
        }
        self.place(t_dl, busy, Direction::Decrement);
        self.place(t_ir, free, Direction::Increment);
    }

    /// Claims the next fragment at `channel`'s end of its partition.
    fn claim(&mut self, channel: Channel) -> Next {
        let Some(member) = &mut self.members[channel] else { return Next::Done };
        let unsent = &mut self.partitions[member.partition].unsent;
        let fragment = match member.direction {
            Direction::Increment => unsent.next(),
            Direction::Decrement => unsent.next_back(),
        };
        let Some(fragment) = fragment else { return Next::Done };
        member.contribution += 1.0;
        let framing = match std::mem::replace(&mut member.started, true) {
            true => Framing::Continue,
            false => Framing::Start(member.direction),
        };
        self.run(fragment, framing)
    }

    /// Claims the last unsent fragment of a partition for a free channel.
    fn claim_last(&mut self, channel: Channel, partition: usize) -> Next {
        let Some(fragment) = self.partitions[partition].unsent.next() else { return Next::Done };
        if let Some(member) = &mut self.members[channel] {
            member.contribution += 1.0;
        }
        self.run(fragment, Framing::Start(Direction::Increment))
    }

    fn run(&mut self, fragment: u64, framing: Framing) -> Next {
        let start = fragment * self.fragment_bytes;
        let range = start..self.total_bytes.min(start.saturating_add(self.fragment_bytes));
        self.unclaimed_bytes -= range.end - range.start;
        Next::Run(Run { range, framing })
    }
}

impl Scheme for TwoEnded {
    fn next(&mut self, channel: Channel, _: &[ChannelView]) -> Next {
        if std::mem::take(&mut self.announce) {
            return Next::Run(Run { range: 0..0, framing: Framing::Start(Direction::Increment) });
        }
        if self.members.get(channel).is_none_or(Option::is_none) {
            self.join(channel);
        }
        let partition = self.members[channel].as_ref().map_or(0, |m| m.partition);
        if self.partitions[partition].unsent.is_empty() {
            match self.busiest() {
                None => return Next::Done,
                Some(busy) if self.partitions[busy].fragments() == 1 => return self.claim_last(channel, busy),
                Some(busy) => self.help(partition, busy),
            }
        }
        self.claim(channel)
    }

    fn lost(&mut self, channel: Channel, _: &[ChannelView]) -> Vec<Range<u64>> {
        if let Some(member) = self.members.get_mut(channel).and_then(Option::take) {
            self.place(None, member.partition, member.direction);
        }
        // No range is returned: the partner continues, or free channels take over.
        Vec::new()
    }

    fn unclaimed_bytes(&self) -> u64 {
        self.unclaimed_bytes
    }
}

impl Partition {
    fn fragments(&self) -> u64 {
        self.unsent.end - self.unsent.start
    }

    /// The number of channels of the partition.
    fn crew(&self) -> usize {
        usize::from(self.incremental.is_some()) + usize::from(self.decremental.is_some())
    }
}

/// The rates that size partitions: the mean for unknown ones, and 0 for channels that are down.
fn rates(channels: &[ChannelView]) -> Vec<f64> {
    let known = channels.iter().filter(|c| c.up && c.rate_bytes_s > 0.0);
    let (sum, count) = known.fold((0.0, 0), |(s, n), c| (s + c.rate_bytes_s, n + 1));
    let unknown = if count == 0 { 1.0 } else { sum / f64::from(count) };
    let rate = |c: &ChannelView| match (c.up, c.rate_bytes_s > 0.0) {
        (false, _) => 0.0,
        (true, true) => c.rate_bytes_s,
        (true, false) => unknown,
    };
    channels.iter().map(rate).collect()
}

/// The channels that are up, two by two in their order. Of an odd number, the slowest (the last of
/// equals) comes last, alone.
fn pairs(channels: &[ChannelView], rates: &[f64]) -> Vec<(Channel, Option<Channel>)> {
    let mut up: Vec<Channel> = (0..channels.len()).filter(|&c| channels[c].up).collect();
    if up.len() % 2 == 1 {
        let slowest = (0..up.len()).rev().min_by(|&a, &b| rates[up[a]].total_cmp(&rates[up[b]])).unwrap_or(0);
        let alone = up.remove(slowest);
        up.push(alone);
    }
    up.chunks(2).map(|pair| (pair[0], pair.get(1).copied())).collect()
}

#[cfg(test)]
mod tests;

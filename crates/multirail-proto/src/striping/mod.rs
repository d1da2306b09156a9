//! How the bytes of one message are given to the channels of a session.
//!
//! A [`Striping`] exists for one message. The driver asks it for the next [`Run`] whenever a channel can take bytes
//! ([`Striping::next`]), tells it when a channel is lost ([`Striping::channel_lost`]) and hands back what a lost channel
//! had taken and the receiver never confirmed ([`Striping::give_back`]). Asking binds: a run that was returned will be sent.
//!
//! Five schemes stand behind that one interface; see [`Strategy`].

mod adaptive;
mod equal_partition;
pub mod rate;
mod shared_counter;
mod two_ended;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

pub use adaptive::{MAX_RUN_BYTES, MIN_STRIPE_BYTES};

/// A channel's place in the session's table of channels: dense, small, never reused within a message.
pub type Channel = usize;

/// How fragments are given to channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Everything on the best channel.
    Single,
    /// As many equal parts as channels (PSockets, section 3; with equal rails also MuniSocket's "Peak").
    EqualPartition,
    /// Channels take the next fragment from one counter, a header with each (basic MuniSocket, section 3.1).
    SharedCounter,
    /// Pairs of channels work from both ends of a partition until they meet, and free pairs help busy ones (Enhanced
    /// MuniSocket, sections 4.1 and 5.1).
    TwoEnded,
    /// Ours: runs sized so that all channels finish together, by the rates that the receiver measured.
    Adaptive,
}

impl Strategy {
    /// All strategies, the papers' first.
    pub const ALL: [Strategy; 5] =
        [Self::Single, Self::EqualPartition, Self::SharedCounter, Self::TwoEnded, Self::Adaptive];

    /// The name used in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::EqualPartition => "equal-partition",
            Self::SharedCounter => "shared-counter",
            Self::TwoEnded => "two-ended",
            Self::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no strategy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no strategy `{0}`; there are single, equal-partition, shared-counter, two-ended and adaptive")]
pub struct UnknownStrategy(String);

impl FromStr for Strategy {
    type Err = UnknownStrategy;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|s| s.name() == text).ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}

/// What the driver knows of a channel at the moment it asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChannelView {
    /// Whether the channel can carry anything at all.
    pub up: bool,
    /// What the receiver saw arrive while the channel was busy; 0 where nothing was measured yet.
    pub rate_bytes_s: f64,
    /// From writing a byte on an empty channel to its arrival: half a round trip and what the hosts add.
    pub latency_us: f64,
    /// What a byte written now has to wait for before it leaves this host: claimed, and probably not sent yet. See
    /// [`ChannelView::set_backlog`].
    pub backlog_bytes: u64,
    /// What the channel's socket surely takes at once: the rest of a longer run would wait in this process, and the next message
    /// behind it.
    pub max_run_bytes: u64,
}

impl ChannelView {
    /// Works the backlog out from what a driver can know: bytes claimed and not acknowledged, and for how long the
    /// channel has had some without a break.
    ///
    /// Of a busy channel's unacknowledged bytes, a round trip's worth is under way or has arrived, and delays nothing that is
    /// written now. Counted as backlog, it would make a far rail look a round trip further away than it is. A channel
    /// that became busy just now has nothing under way yet, so it counts in full.
    pub fn set_backlog(&mut self, unacknowledged_bytes: u64, busy_us: f64) {
        let under_way = self.rate_bytes_s / 1e6 * busy_us.min(2.0 * self.latency_us);
        self.backlog_bytes = unacknowledged_bytes.saturating_sub(under_way as u64);
    }
}

/// What a channel shall send next: bytes of the message, and how they are announced on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The bytes of the message; never empty, except for an empty message.
    pub range: Range<u64>,
    /// How they are announced.
    pub framing: Framing,
}

/// How a run is announced on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A header with offset and length.
    Header,
    /// Two-ended: the paper's *Start* message, with this run's offset and the direction of what follows, then the fragment.
    Start(Direction),
    /// Two-ended: the next fragment in the announced direction; one marker byte, no sequence number.
    Continue,
}

/// The paper's *counterMode*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From left to right.
    Increment,
    /// From right to left.
    Decrement,
}

/// The answer to "what shall this channel send?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// This run. It counts as sent from now on.
    Run(Run),
    /// Nothing now: others will finish sooner. Ask again when something has changed.
    Wait,
    /// Nothing more for this channel in this message, unless something is given back.
    Done,
}

/// What the schemes have in common. Each state machine lives for one message.
trait Scheme: fmt::Debug + Send {
    /// The next run of `channel`. `channels` may have grown since the message began.
    fn next(&mut self, channel: Channel, channels: &[ChannelView]) -> Next;
    /// `channel` will not ask again. Returns what only that channel would have sent and had not yet claimed.
    fn lost(&mut self, channel: Channel, channels: &[ChannelView]) -> Vec<Range<u64>>;
    /// Bytes that nobody has claimed.
    fn unclaimed_bytes(&self) -> u64;
}

/// One message being striped.
#[derive(Debug)]
pub struct Striping {
    scheme: Box<dyn Scheme>,
    strategy: Strategy,
    total_bytes: u64,
    /// Ranges that were claimed by a channel that died: claimed again before anything else, with a header each, because
    /// the papers have no rule for them.
    returned: VecDeque<Range<u64>>,
}

impl Striping {
    /// Begins a message of `total_bytes` over `channels`.
    ///
    /// `fragment_bytes` is the unit of `shared-counter` and `two-ended`, and what `adaptive` rounds its cuts to (1 for
    /// memory, a block for files); `equal-partition` and `single` do not use it.
    ///
    /// # Panics
    /// If `fragment_bytes` is 0 or there are no channels: the caller's mistake.
    pub fn new(strategy: Strategy, total_bytes: u64, fragment_bytes: u64, channels: &[ChannelView]) -> Self {
        assert!(fragment_bytes > 0 && !channels.is_empty());
        let scheme: Box<dyn Scheme> = match strategy {
            Strategy::Single => Box::new(adaptive::Adaptive::single(total_bytes)),
            Strategy::EqualPartition => Box::new(equal_partition::EqualPartition::new(total_bytes, channels)),
            Strategy::SharedCounter => Box::new(shared_counter::SharedCounter::new(total_bytes, fragment_bytes)),
            Strategy::TwoEnded => Box::new(two_ended::TwoEnded::new(total_bytes, fragment_bytes, channels)),
            Strategy::Adaptive => Box::new(adaptive::Adaptive::new(total_bytes, fragment_bytes, channels)),
        };
        Self { scheme, strategy, total_bytes, returned: VecDeque::new() }
    }

    /// What `channel`, which can take bytes now, shall send.
    pub fn next(&mut self, channel: Channel, channels: &[ChannelView]) -> Next {
        if !channels[channel].up {
            return Next::Done;
        }
        if let Some(range) = self.returned.front_mut() {
            let end = range.end.min(range.start + MAX_RUN_BYTES);
            let run = Run { range: range.start..end, framing: Framing::Header };
            range.start = end;
            if range.is_empty() {
                self.returned.pop_front();
            }
            return Next::Run(run);
        }
        self.scheme.next(channel, channels)
    }

    /// `channel` is gone for the rest of this message. What it had claimed and the receiver has not confirmed must come
    /// back by [`Striping::give_back`].
    pub fn channel_lost(&mut self, channel: Channel, channels: &[ChannelView]) {
        let orphans = self.scheme.lost(channel, channels);
        self.returned.extend(orphans.into_iter().filter(|r| !r.is_empty()));
    }

    /// Puts a claimed range up for claiming again. It must not be up already, or with a channel that is still counted on; of an
    /// empty message, the empty range is what may have been lost.
    pub fn give_back(&mut self, range: Range<u64>) {
        if !range.is_empty() || self.total_bytes == 0 {
            self.returned.push_back(range);
        }
    }

    /// Bytes that nobody has claimed, or that were given back.
    pub fn unclaimed_bytes(&self) -> u64 {
        self.scheme.unclaimed_bytes() + self.returned.iter().map(|r| r.end - r.start).sum::<u64>()
    }

    /// Whether nothing is left to claim. Not the same as no bytes left: an empty message that was given back has none.
    pub fn is_claimed(&self) -> bool {
        self.scheme.unclaimed_bytes() == 0 && self.returned.is_empty()
    }

    /// The strategy this message was begun with.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// When `idle` has nothing left to claim: a range that another channel is stuck with and that `idle` would deliver
    /// clearly sooner, to be sent a second time (DESIGN decision 4; the receiver's ledger drops what comes twice).
    ///
    /// `outstanding` are the sent and unacknowledged ranges with the channel that has each, in the order of sending. Only `adaptive`
    /// re-sends; the papers' strategies return `None`.
    pub fn rescue(
        &self,
        idle: Channel,
        channels: &[ChannelView],
        outstanding: &[(Channel, Range<u64>)],
    ) -> Option<Range<u64>> {
        if self.strategy != Strategy::Adaptive {
            return None;
        }
        adaptive::rescue(idle, channels, outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_no_backlog() {
        let mut view = ChannelView {
            up: true,
            rate_bytes_s: 1e6,
            latency_us: 10_000.0,
            backlog_bytes: 0,
            max_run_bytes: u64::MAX,
        };
        for (busy_us, backlog_bytes) in [(0.0, 50_000), (5_000.0, 45_000), (20_000.0, 30_000), (1e9, 30_000)] {
            view.set_backlog(50_000, busy_us);
            assert_eq!(view.backlog_bytes, backlog_bytes);
        }
        view.set_backlog(100, 1e9);
        assert_eq!(view.backlog_bytes, 0);
    }
}

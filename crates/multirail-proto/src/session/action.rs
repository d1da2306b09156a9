//! What the machine asks the driver to do.

use crate::striping::Channel;

/// A channel that the dialler should open in place of one that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redial {
    /// Id of the new channel.
    pub id: u32,
    /// The rail on which to open it.
    pub rail: u32,
    /// Id of the lost channel.
    pub replaces: u32,
}

/// Why a channel's connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The driver reported an error or the end of the stream.
    Reported,
    /// The peer has ended the connection.
    PeerClosed,
    /// The kernel gave the connection up.
    TimedOut,
    /// The peer or this side has opened another channel in its place.
    Replaced,
    /// The rail is as fast with one channel less.
    Retired,
    /// The session is over.
    SessionOver,
}

/// Something that happened inside the machine, for logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nothing was acknowledged on a channel for a while, so that others send its bytes again.
    Stalled {
        /// Id of the channel.
        id: u32,
    },
    /// A channel sends again what another one is late with.
    Rescued {
        /// Id of the channel that sends.
        id: u32,
        /// Offset in the current message.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A rail should have another number of channels.
    ChannelCount {
        /// The rail.
        rail: u32,
        /// Channels that it has.
        from: u32,
        /// Channels that it should have.
        to: u32,
    },
}

/// Something that the driver must do, in the order of
/// [`Machine::poll_action`](super::Machine::poll_action).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Shut the channel's connection down and drop it. Its entry in the table of channels stays.
    Close {
        /// The channel.
        channel: Channel,
        /// Why, for logs.
        reason: CloseReason,
    },
    /// Remove all channels without connection from the table; the others keep their order.
    ForgetClosed,
    /// Send what [`Machine::control_output`](super::Machine::control_output) still has, as far as
    /// the kernel takes it, then end the control connection. The session is over.
    End,
    /// Keep at most this many unsent bytes in the channel's socket.
    LimitUnsent {
        /// The channel.
        channel: Channel,
        /// The limit.
        bytes: u32,
    },
    /// Wait for the peer's acknowledgements without limit, or with the usual one again. While the
    /// peer's window is closed, silence does not mean that the rail is dead.
    TolerateSilence {
        /// The channel.
        channel: Channel,
        /// Whether to wait without limit.
        tolerate: bool,
    },
    /// Dial a lost channel again. The driver answers with a new connection or with
    /// [`Machine::handle_redial_failed`](super::Machine::handle_redial_failed).
    Redial(Redial),
    /// Dial the control connection again, over the first rail that answers. The driver answers
    /// with a new connection or with
    /// [`Machine::handle_control_redial_failed`](super::Machine::handle_control_redial_failed).
    RedialControl,
    /// Open further channels on a rail, all of them or none.
    OpenChannels {
        /// The rail.
        rail: u32,
        /// How many.
        count: u32,
    },
    /// Log this.
    Log(Event),
}

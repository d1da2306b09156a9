//! How a stream works.

use crate::edge::Transport;
use multirail_proto::pipeline::Schedule;

/// Options of a logical stream. Start from [`StreamOptions::default`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// How buffers are distributed over the consumer's copies; default demand-driven.
    pub schedule: Schedule,
    /// Most buffers from one copy to another that the receiver has not started on; default 4.
    ///
    /// The default hides the round trip of an acknowledgement and leaves a slow copy with little
    /// to delay. The memory of an edge is the window times the size of a buffer.
    pub window: u32,
    /// What carries the stream between hosts; default: the best that both hosts can do.
    pub transport: Option<Transport>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { schedule: Schedule::default(), window: 4, transport: None }
    }
}

impl StreamOptions {
    /// The same options with another schedule.
    #[must_use]
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule, ..self }
    }

    /// The same options with another window, in buffers.
    #[must_use]
    pub fn window(self, window: u32) -> Self {
        Self { window, ..self }
    }

    /// The same options with another transport.
    #[must_use]
    pub fn transport(self, transport: Option<Transport>) -> Self {
        Self { transport, ..self }
    }
}

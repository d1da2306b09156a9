//! A logical stream to the copies of a consumer.

use super::types::OutputConfig;
use crate::pipeline::header::DataHeader;
use crate::pipeline::replay::ReplayBuffer;
use crate::pipeline::scheduler::Scheduler;

/// The state of one output stream.
#[derive(Debug)]
pub(super) struct Output<B> {
    pub keep: bool,
    pub scheduler: Scheduler,
    pub consumers: Vec<Consumer<B>>,
    /// Buffers up to this number belong to abandoned units, so that a late `Done` is no violation.
    pub abandoned_up_to: u64,
}

/// The edge to one copy of the consumer.
#[derive(Debug)]
pub(super) struct Consumer<B> {
    pub sent: ReplayBuffer<(DataHeader, B)>,
    pub is_lost: bool,
}

impl<B> Output<B> {
    /// A stream of the given copy of the producer.
    pub(super) fn new(config: &OutputConfig, producer_copy: usize) -> Self {
        let consumer = || Consumer { sent: ReplayBuffer::default(), is_lost: false };
        Self {
            keep: config.keep,
            scheduler: Scheduler::new(config.schedule, config.window, config.consumers, producer_copy),
            consumers: (0..config.consumers).map(|_| consumer()).collect(),
            abandoned_up_to: 0,
        }
    }

    /// Excludes a copy. Returns the buffers that it was not done with.
    pub(super) fn lose(&mut self, copy: usize) -> Vec<(DataHeader, B)> {
        self.scheduler.remove(copy);
        let consumer = &mut self.consumers[copy];
        consumer.is_lost = true;
        consumer.sent.take().into_iter().map(|(_, buffer)| buffer).collect()
    }

    /// Whether the other copies can take over what a copy is lost with.
    pub(super) fn survives_loss(&self) -> bool {
        self.keep && self.scheduler.has_consumers()
    }
}

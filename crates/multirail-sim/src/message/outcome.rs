//! What came of a simulated message.

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// When the receiver had everything, since the message began.
    pub finish_us: f64,
    /// When it could have
    /// ([`ideal_finish_us`](crate::schedule::ideal_finish_us)).
    pub ideal_us: f64,
    /// Message bytes that each channel delivered until then, second copies included.
    pub channel_bytes: Vec<u64>,
    /// Runs announced with a header.
    pub headers: u64,
    /// *Start* messages.
    pub starts: u64,
    /// Fragments that only a marker announced.
    pub continues: u64,
    /// Bytes that arrived again.
    pub duplicate_bytes: u64,
    /// Runs sent a second time because their first channel was late.
    pub rescues: u64,
}

impl Outcome {
    /// How much later than possible it was: 0.03 is 3 %.
    pub fn excess(&self) -> f64 {
        self.finish_us / self.ideal_us - 1.0
    }
}

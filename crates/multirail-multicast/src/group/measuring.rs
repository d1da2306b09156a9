//! The round trips that a member measures for its coordinator's survey.

use super::driver::MemberDriver;
use crate::discovery::measure::round_trips;
use crate::wire::FromHost;
use multirail_net::error::{Error, Result};
use multirail_proto::multicast::MemberId;
use multirail_proto::multicast::coordinator::survey::MAX_TARGETS;
use std::pin::Pin;

/// At most one measurement.
#[derive(Default)]
pub(super) struct Measuring(Option<Pin<Box<dyn Future<Output = FromHost> + Send>>>);

impl Measuring {
    /// Begins to measure. A measurement that has not ended is given up, since its round is over.
    pub(super) fn begin(&mut self, member: &MemberDriver, round: u32, targets: &[MemberId]) -> Result<()> {
        let hosts = member.addresses(targets).filter(|hosts| hosts.len() <= MAX_TARGETS);
        let hosts =
            hosts.ok_or_else(|| Error::Protocol("a request to measure to hosts out of the group".to_owned()))?;
        self.0 = Some(Box::pin(async move { FromHost::Measured { round, rtts_us: round_trips(&hosts).await } }));
        Ok(())
    }

    /// Waits for the end of the measurement; without one, for ever.
    ///
    /// Cancel-safe: the measurement goes on with the next call.
    pub(super) async fn end(&mut self) -> FromHost {
        let Some(measuring) = &mut self.0 else { return std::future::pending().await };
        let measured = measuring.await;
        self.0 = None;
        measured
    }
}

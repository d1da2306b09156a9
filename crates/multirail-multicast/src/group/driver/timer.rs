//! The timer of a member.

use super::{Core, MemberDriver};
use std::sync::Arc;
use std::time::Duration;

impl MemberDriver {
    /// Gives the machine its timeouts until the host has left or failed.
    pub(super) async fn run_timer(self: Arc<Self>) {
        loop {
            let next_us = {
                let mut core = self.lock();
                let Core { machine, links, .. } = &mut *core;
                for (peer, link) in links {
                    let heard_us = link.heard_at().saturating_duration_since(self.began).as_micros() as u64;
                    machine.handle_heard(*peer, link.number(), heard_us);
                }
                // An event may already have asked for a time that has come.
                if machine.poll_timeout().is_some_and(|at| at <= self.now_us()) {
                    machine.handle_timeout(self.now_us());
                }
                self.carry_out(&mut core);
                core.timer_at_us = core.machine.poll_timeout();
                core.timer_at_us
            };
            let Some(next_us) = next_us else { return };
            let wait = Duration::from_micros(next_us.saturating_sub(self.now_us()));
            let _ = tokio::time::timeout(wait, self.timer.notified()).await;
        }
    }
}

//! How a server ends: it takes no new sessions, waits for running requests, and ends the rest.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Ends a server. Clones end the same one.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Since when the server is to end: within which time requests must.
    within: Option<Duration>,
    /// Sessions and connections that are served.
    active: usize,
}

/// Counts a session or connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Active(Stop);

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Ends nothing yet.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Ends the server. From now on it accepts no new session and no further request. Requests that run
    /// may go on for `within`. A second call can only shorten that time.
    pub fn stop(&self, within: Duration) {
        self.0.send_modify(|state| state.within = Some(state.within.map_or(within, |before| before.min(within))));
    }

    /// How many sessions and connections are served.
    pub fn active(&self) -> usize {
        self.0.borrow().active
    }

    /// Waits until the server is to end.
    pub(crate) async fn wanted(&self) {
        // The sender is here, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|state| state.within.is_some()).await;
    }

    /// Waits until no session and no connection is served, or the time for that is over, which is
    /// false.
    pub(crate) async fn ended(&self) -> bool {
        let began = tokio::time::Instant::now();
        let mut state = self.0.subscribe();
        loop {
            let State { within, active } = *state.borrow_and_update();
            if active == 0 {
                return true;
            }
            let left = within.unwrap_or_default().saturating_sub(began.elapsed());
            if tokio::time::timeout(left, state.changed()).await.is_err() {
                return false;
            }
        }
    }

    /// Waits until no session and no connection is served.
    pub(crate) async fn idle(&self) {
        let _ = self.0.subscribe().wait_for(|state| state.active == 0).await;
    }

    pub(crate) fn enter(&self) -> Active {
        self.0.send_modify(|state| state.active += 1);
        Active(self.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.active -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn running_requests_have_their_time() {
        let stop = Stop::new();
        let active = stop.enter();
        assert!(tokio::time::timeout(Duration::from_secs(9), stop.wanted()).await.is_err());
        stop.stop(Duration::from_secs(10));
        stop.wanted().await;
        assert!(!stop.ended().await);
        stop.stop(Duration::from_secs(3600));
        assert!(!stop.ended().await, "the time does not become longer");
        drop(active);
        assert!(stop.ended().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_stop_ends_at_once() {
        let stop = Stop::new();
        let _active = stop.enter();
        stop.stop(Duration::from_secs(3600));
        let again = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            again.stop(Duration::ZERO);
        });
        let began = tokio::time::Instant::now();
        assert!(!stop.ended().await);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}

//! Servers that run for one broadcast. The same command starts them and the root (Slurm,
//! Kubernetes), and they end with the broadcast. The root opens a session to each such server
//! before it invites hosts, and asks the server to attend ([`Attendants::gather`]). At the end it
//! reports the outcome ([`Attendants::dismiss`]). A server whose root disappears without a report
//! says so.

use crate::request::{MULTICAST, MulticastRequest};
use futures_util::StreamExt;
use multirail_net::Session;
use multirail_net::error::{Error, Result};
use multirail_net::request;
use multirail_net::session::Config;
use multirail_net::sync::lock;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The pause between two attempts to reach a host that is being started.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The number of hosts that are asked at once.
const ASKED_AT_ONCE: usize = 64;
/// The time limit for reporting the outcome.
const DISMISS_TIMEOUT: Duration = Duration::from_secs(5);

/// The outcome of a broadcast for a server that attended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// This host is complete.
    Complete,
    /// This host is incomplete, and why.
    Failed(String),
}

/// A server's part in a broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Part {
    /// No root has asked the server to attend.
    #[default]
    Waiting,
    /// The server attends.
    Attending,
    /// The broadcast is over.
    Over(Verdict),
    /// The root disappeared without a report.
    RootLost,
}

/// Tells the process of a server about its part. The first root that asks the server counts.
#[derive(Debug, Default)]
pub struct Attendance {
    part: Mutex<Part>,
    changed: Notify,
}

impl Attendance {
    /// The current part.
    pub fn part(&self) -> Part {
        self.lock().clone()
    }

    /// Waits until the part differs from `known`. One task may wait at a time.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a change is found by the next call.
    pub async fn changed(&self, known: &Part) -> Part {
        loop {
            let changed = self.changed.notified();
            let now = self.part();
            if now != *known {
                return now;
            }
            changed.await;
        }
    }

    fn set(&self, part: Part) {
        *self.lock() = part;
        // One process waits. If it does not wait yet, it will find the permit.
        self.changed.notify_one();
    }

    /// Whether this root is the first.
    fn begin(&self) -> bool {
        let first = *self.lock() == Part::Waiting;
        if first {
            self.set(Part::Attending);
        }
        first
    }

    fn lock(&self) -> MutexGuard<'_, Part> {
        lock(&self.part)
    }
}

/// A server's answer to the request to attend.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Attending,
    /// The server serves any client and does not end with the broadcast.
    Permanent,
    /// Another root was first.
    Taken,
}

/// The server's half of [`Attendants`].
pub(crate) async fn serve_attend(session: &mut Session, attendance: Option<&Attendance>) -> Result<()> {
    let Some(attendance) = attendance else {
        return request::send(session, &Answer::Permanent).await;
    };
    if !attendance.begin() {
        return request::send(session, &Answer::Taken).await;
    }
    let told = async {
        request::send(session, &Answer::Attending).await?;
        request::receive::<Verdict>(session).await
    };
    let told = told.await;
    attendance.set(told.as_ref().map_or(Part::RootLost, |verdict| Part::Over(verdict.clone())));
    told.map(drop)
}

/// The attending hosts, on the root.
#[derive(Debug)]
pub struct Attendants {
    sessions: Vec<Option<Session>>,
    absent: Vec<(usize, String)>,
}

impl Attendants {
    /// Asks `hosts` (`name:port`) to attend. Repeats for up to `timeout`, since the hosts are
    /// being started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sessions, and servers that attend see that their root is lost.
    pub async fn gather(hosts: &[String], config: &Config, timeout: Duration) -> Attendants {
        let end = Instant::now() + timeout;
        let asked = hosts.iter().map(|host| async move {
            loop {
                match ask(host, config).await {
                    // A server that does not answer yet will do so later. A server with another
                    // token will not.
                    Err(
                        Error::Unreachable { .. }
                        | Error::NoRail { .. }
                        | Error::HandshakeTimeout { .. }
                        | Error::Busy { .. }
                        | Error::Stopping,
                    ) if Instant::now() < end => {
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                    told => return told,
                }
            }
        });
        let told: Vec<_> = futures_util::stream::iter(asked).buffered(ASKED_AT_ONCE).collect().await;
        let mut attendants = Attendants { sessions: Vec::new(), absent: Vec::new() };
        for (number, told) in told.into_iter().enumerate() {
            let error = told.as_ref().err().map(ToString::to_string);
            attendants.absent.extend(error.map(|error| (number, error)));
            attendants.sessions.push(told.ok().flatten());
        }
        attendants
    }

    /// Hosts that do not attend, by their index in the list, and why.
    pub fn absent(&self) -> &[(usize, String)] {
        &self.absent
    }

    /// The number of hosts that were asked.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Reports the outcome to each host. A host that cannot be reached within 5 s finds out by
    /// itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sessions of hosts that the report has not reached.
    pub async fn dismiss(self, verdicts: impl IntoIterator<Item = Verdict>) {
        let told = self.sessions.into_iter().zip(verdicts).filter_map(|(session, verdict)| Some((session?, verdict)));
        let told = told.map(|(mut session, verdict)| async move {
            let say = async {
                request::send(&mut session, &verdict).await?;
                session.close().await
            };
            let _ = tokio::time::timeout(DISMISS_TIMEOUT, say).await;
        });
        futures_util::stream::iter(told).buffer_unordered(ASKED_AT_ONCE).collect::<()>().await;
    }
}

/// A session that stays; `None` if the server is permanent.
async fn ask(host: &str, config: &Config) -> Result<Option<Session>> {
    let mut session = Session::connect(host, config.clone()).await?;
    request::send_request(&mut session, MULTICAST, &MulticastRequest::Attend).await?;
    match request::receive(&mut session).await? {
        Answer::Attending => Ok(Some(session)),
        Answer::Permanent => session.close().await.map(|()| None),
        Answer::Taken => {
            Err(Error::Aborted("it already takes part in another broadcast; is another root running?".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::MulticastHandler;
    use multirail_net::probe::{PROBE, ProbeHandler};
    use multirail_net::router::Router;
    use multirail_net::session::{ListenConfig, Listener};
    use std::sync::Arc;

    async fn server(attendance: Option<Arc<Attendance>>) -> String {
        let listen = ListenConfig::new(([127, 0, 0, 1], 0), Config::default());
        let handler = MulticastHandler::new(&std::env::temp_dir(), Config::default(), attendance);
        let router =
            Router::new().register(PROBE, Arc::new(ProbeHandler::default())).register(MULTICAST, Arc::new(handler));
        let listener = Listener::bind(listen).await.unwrap();
        let address = listener.address().to_string();
        tokio::spawn(router.serve(listener));
        address
    }

    #[tokio::test]
    async fn servers_that_attend_end_with_the_broadcast() {
        let attendances = [Arc::new(Attendance::default()), Arc::new(Attendance::default())];
        let mut hosts = vec![server(None).await];
        for attendance in &attendances {
            hosts.push(server(Some(attendance.clone())).await);
        }
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        hosts.push(gone.to_string());
        let config = Config::default();
        let attendants = Attendants::gather(&hosts, &config, Duration::ZERO).await;
        assert_eq!(attendants.absent().iter().map(|(host, _)| *host).collect::<Vec<_>>(), [3]);
        assert!(attendances.iter().all(|a| a.part() == Part::Attending));

        let second = Attendants::gather(&hosts[1..2], &config, Duration::ZERO).await;
        assert!(second.absent()[0].1.contains("already takes part in another broadcast"), "{:?}", second.absent());

        let failed = Verdict::Failed("its disk is full".to_owned());
        attendants.dismiss([Verdict::Complete, Verdict::Complete, failed.clone(), Verdict::Complete]).await;
        assert_eq!(attendances[0].changed(&Part::Attending).await, Part::Over(Verdict::Complete));
        assert_eq!(attendances[1].changed(&Part::Attending).await, Part::Over(failed));
    }

    #[tokio::test]
    async fn a_lost_root_is_noticed() {
        let attendance = Arc::new(Attendance::default());
        let host = server(Some(attendance.clone())).await;
        let attendants = Attendants::gather(&[host], &Config::default(), Duration::ZERO).await;
        assert_eq!(attendance.part(), Part::Attending);
        for session in attendants.sessions.into_iter().flatten() {
            session.close().await.unwrap();
        }
        assert_eq!(attendance.changed(&Part::Attending).await, Part::RootLost);
    }
}

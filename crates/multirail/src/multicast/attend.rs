//! Servers that run for one broadcast: started by the same command as the root (Slurm, Kubernetes), they end with it.
//!
//! Before it invites anybody the root opens a session to each such server and asks it to attend ([`Attendants::gather`]); when all
//! is over it says how it went ([`Attendants::dismiss`]). A server whose root is gone without a word says so.

use crate::Session;
use crate::error::{Error, Result};
use crate::service::{self, Request};
use crate::session::Config;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Between two attempts to reach a host that is being started.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Hosts asked at once.
const ASKED_AT_ONCE: usize = 64;
/// What is not said by then is not said.
const DISMISS_TIMEOUT: Duration = Duration::from_secs(5);

/// How a broadcast went, for a server that attended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// This host has the whole.
    Complete,
    /// It has not, and why.
    Failed(String),
}

/// A server's part in a broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Part {
    /// Nobody has asked it to attend yet.
    #[default]
    Waiting,
    /// It attends.
    Attending,
    /// The broadcast is over.
    Over(Verdict),
    /// The root is gone without having said that it is over.
    RootLost,
}

/// Tells a server's process what its part is. The first root that asks it counts.
#[derive(Debug, Default)]
pub struct Attendance {
    part: Mutex<Part>,
    changed: Notify,
}

impl Attendance {
    /// What the part is now.
    pub fn part(&self) -> Part {
        self.lock().clone()
    }

    /// Waits until the part is another one than `known`.
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
        // One process waits. If it does not yet, it will find the permit.
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
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server answers when it is asked to attend.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Attending,
    /// It serves whoever comes, and does not end.
    Permanent,
    /// Another root was here first.
    Taken,
}

/// The server's half of [`Attendants`].
pub(crate) async fn serve_attend(session: &mut Session, attendance: Option<&Attendance>) -> Result<()> {
    let Some(attendance) = attendance else {
        return service::send(session, &Answer::Permanent).await;
    };
    if !attendance.begin() {
        return service::send(session, &Answer::Taken).await;
    }
    let told = async {
        service::send(session, &Answer::Attending).await?;
        service::receive::<Verdict>(session).await
    };
    let told = told.await;
    attendance.set(told.as_ref().map_or(Part::RootLost, |verdict| Part::Over(verdict.clone())));
    told.map(drop)
}

/// The hosts that attend, for the root.
#[derive(Debug)]
pub struct Attendants {
    sessions: Vec<Option<Session>>,
    absent: Vec<(usize, String)>,
}

impl Attendants {
    /// Asks `hosts` (`name:port`) to attend, again and again for as long as `patience` lasts, since they are being started.
    pub async fn gather(hosts: &[String], config: &Config, patience: Duration) -> Attendants {
        let end = Instant::now() + patience;
        let asked = hosts.iter().map(|host| async move {
            loop {
                match ask(host, config).await {
                    // A server that is not there yet will be; one with another token will not.
                    Err(Error::Unreachable { .. } | Error::HandshakeTimeout { .. }) if Instant::now() < end => {
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

    /// Hosts that do not attend, by their place in the list, and why.
    pub fn absent(&self) -> &[(usize, String)] {
        &self.absent
    }

    /// How many were asked.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Tells each host how it went. What cannot be told is not: that host finds out by itself.
    pub async fn dismiss(self, verdicts: impl IntoIterator<Item = Verdict>) {
        let told = self.sessions.into_iter().zip(verdicts).filter_map(|(session, verdict)| Some((session?, verdict)));
        let told = told.map(|(mut session, verdict)| async move {
            let say = async {
                service::send(&mut session, &verdict).await?;
                session.close().await
            };
            let _ = tokio::time::timeout(DISMISS_TIMEOUT, say).await;
        });
        futures_util::stream::iter(told).buffer_unordered(ASKED_AT_ONCE).collect::<()>().await;
    }
}

/// A session that stays, or none if the server is a permanent one.
async fn ask(host: &str, config: &Config) -> Result<Option<Session>> {
    let mut session = Session::connect(host, config.clone()).await?;
    service::send(&mut session, &Request::Attend).await?;
    match service::receive(&mut session).await? {
        Answer::Attending => Ok(Some(session)),
        Answer::Permanent => session.close().await.map(|()| None),
        Answer::Taken => Err(Error::Aborted("it takes part in another broadcast; is another root running?".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::ListenConfig;
    use std::sync::Arc;

    async fn server(attendance: Option<Arc<Attendance>>) -> String {
        let listen =
            ListenConfig { address: ([127, 0, 0, 1], 0).into(), insecure_no_token: false, session: Config::default() };
        let (ready, address) = tokio::sync::oneshot::channel();
        let config = service::ServeConfig { listen, root: std::env::temp_dir() };
        tokio::spawn(service::serve_attending(config, attendance, |address| ready.send(address).unwrap()));
        address.await.unwrap().to_string()
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
        assert!(second.absent()[0].1.contains("takes part in another broadcast"), "{:?}", second.absent());

        let failed = Verdict::Failed("its disk is full".to_owned());
        attendants.dismiss([Verdict::Complete, Verdict::Complete, failed.clone(), Verdict::Complete]).await;
        assert_eq!(attendances[0].changed(&Part::Attending).await, Part::Over(Verdict::Complete));
        assert_eq!(attendances[1].changed(&Part::Attending).await, Part::Over(failed));
    }

    #[tokio::test]
    async fn a_root_that_is_gone_is_noticed() {
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

//! Opening a session's connections, for the first time and again.

use super::driver::DialRequest;
use super::mailbox::Joining;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::handshake::{self, Joined, SessionId};
use crate::secure::keys::{Protection, SessionSecret};
use crate::socket::{self, LocalEnd};
use futures_util::future::join_all;
use multirail_proto::session::Redial;
use std::net::{SocketAddr, TcpStream};
use std::sync::Weak;
use std::time::Duration;

/// How long a rail may take to answer before it counts as unreachable.
const RAIL_TIMEOUT: Duration = Duration::from_secs(1);

/// The data needed to open a session's connections.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    pub(super) session: SessionId,
    pub(super) secret: SessionSecret,
    /// The rails by number.
    pub(super) rails: Vec<RailEnds>,
}

/// The two ends of a rail.
#[derive(Debug, Clone)]
pub(super) struct RailEnds {
    pub(super) local: LocalEnd,
    pub(super) remote: SocketAddr,
}

impl Dialer {
    /// Opens channels with these ids on a rail, all or none.
    pub(super) async fn open(&self, ends: &RailEnds, rail: u32, ids: Vec<u32>) -> Result<Vec<Joining>> {
        let one = async |channel| {
            let (stream, protection) = self.dial(ends, Joined::Data { channel, rail, replaces: None }).await?;
            Ok(Joining::Data { stream, protection, id: channel, rail, replaces: None })
        };
        join_all(ids.into_iter().map(one)).await.into_iter().collect()
    }

    async fn dial(&self, ends: &RailEnds, joined: Joined) -> Result<(TcpStream, Protection)> {
        let unreachable = |cause| Error::Unreachable { host: ends.remote.to_string(), cause };
        let mut stream = socket::dial(Some(&ends.local), ends.remote, RAIL_TIMEOUT).await.map_err(unreachable)?;
        let protection = handshake::join(&mut stream, self.session, &self.secret, joined).await?;
        Ok((stream.into_std().map_err(Error::io("taking over a connection"))?, protection))
    }

    /// Dials what the machine asks for, in a separate task.
    pub(super) fn start(&self, session: &Weak<Shared>, request: DialRequest) {
        let (dialer, session) = (self.clone(), session.clone());
        match request {
            DialRequest::Channel(redial) => tokio::spawn(dialer.redial_channel(session, redial)),
            DialRequest::Control => tokio::spawn(dialer.redial_control(session)),
            DialRequest::More { rail, count } => tokio::spawn(dialer.open_more(session, rail, count)),
        };
    }

    async fn redial_channel(self, session: Weak<Shared>, redial: Redial) {
        let Redial { id, rail, replaces: lost } = redial;
        let Some(ends) = self.rails.get(rail as usize) else { return };
        let replaces = Some(lost);
        match self.dial(ends, Joined::Data { channel: id, rail, replaces }).await {
            Ok((stream, protection)) => {
                join(&session, Joining::Data { stream, protection, id, rail, replaces });
            }
            Err(Error::SessionUnknown) => session_unknown(&session),
            Err(error) => {
                tracing::debug!(rail, %error, "still down");
                if let Some(shared) = session.upgrade() {
                    let mut driver = shared.lock();
                    let now = driver.now();
                    driver.machine.handle_redial_failed(now, lost, is_refused(&error));
                }
            }
        }
    }

    /// Dials the control connection over the first rail that answers.
    async fn redial_control(self, session: Weak<Shared>) {
        let mut refused = !self.rails.is_empty();
        for ends in &self.rails {
            match self.dial(ends, Joined::Control).await {
                Ok((stream, protection)) => return join(&session, Joining::Control { stream, protection }),
                Err(Error::SessionUnknown) => {
                    session_unknown(&session);
                    break;
                }
                Err(error) => {
                    refused &= is_refused(&error);
                    tracing::debug!(remote = %ends.remote, %error, "no control connection");
                }
            }
        }
        if let Some(shared) = session.upgrade() {
            let mut driver = shared.lock();
            let now = driver.now();
            driver.machine.handle_control_redial_failed(now, refused);
        }
    }

    /// Opens further channels on a rail. If one of them cannot be opened, none is added, and the
    /// machine's trial ends without a gain.
    async fn open_more(self, session: Weak<Shared>, rail: u32, count: u32) {
        let Some(ends) = self.rails.get(rail as usize) else { return };
        let Some(ids) = session.upgrade().map(|shared| new_ids(&shared, count)) else { return };
        for joining in self.open(ends, rail, ids).await.unwrap_or_default() {
            join(&session, joining);
        }
    }
}

/// Whether the other host has answered that no program listens.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Unreachable { cause, .. } if cause.kind() == std::io::ErrorKind::ConnectionRefused)
}

fn join(session: &Weak<Shared>, joining: Joining) {
    if let Some(shared) = session.upgrade() {
        shared.mailbox.put(joining);
        shared.wake();
    }
}

/// The server no longer knows the session. Its last packets may still be on the control connection.
fn session_unknown(session: &Weak<Shared>) {
    if let Some(shared) = session.upgrade() {
        let mut driver = shared.lock();
        let _ = driver.poll_control(&mut std::task::Context::from_waker(&shared.both));
        driver.session_unknown();
        drop(driver);
        shared.wake();
    }
}

/// Ids for `count` new channels.
pub(super) fn new_ids(shared: &Shared, count: u32) -> Vec<u32> {
    let mut driver = shared.lock();
    (0..count).map(|_| driver.machine.new_channel_id()).collect()
}

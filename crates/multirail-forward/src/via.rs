//! The session to one server.

use crate::client::{ForwardError, Forwarder};
use multirail_net::Config;
use std::sync::Arc;
use tokio::sync::Mutex;

/// A named server, and the session to it, which is made again when it is over.
#[derive(Debug)]
pub struct Via {
    host: String,
    config: Config,
    session: Mutex<Option<Arc<Forwarder>>>,
}

impl Via {
    /// The server at `host`, as [`Forwarder::connect`] takes it. It is not connected yet.
    pub fn new(host: impl Into<String>, config: Config) -> Self {
        Self { host: host.into(), config, session: Mutex::default() }
    }

    /// Where the server is.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The session to the server.
    ///
    /// # Errors
    ///
    /// Those of [`Forwarder::connect`], if the session must be made.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    pub async fn session(&self) -> Result<Arc<Forwarder>, ForwardError> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|session| !session.is_over()) {
            return Ok(open.clone());
        }
        let opened = Arc::new(Forwarder::connect(&self.host, self.config.clone()).await?);
        *session = Some(opened.clone());
        Ok(opened)
    }
}

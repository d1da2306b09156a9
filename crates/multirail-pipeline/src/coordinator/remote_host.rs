//! The thread that talks to one other host of the group.

use super::group_state::GroupState;
use crate::error::{PipelineError, Result};
use crate::host::{FromHost, PIPELINE, ToHost, receive, send};
use multirail_net::error::Result as NetResult;
use multirail_net::{Config, Session, request, runtime};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A host other than this process. Dropping it ends the group there.
#[derive(Debug)]
pub(super) struct RemoteHost {
    pub number: u32,
    messages: Option<UnboundedSender<ToHost>>,
    thread: Option<JoinHandle<()>>,
}

impl RemoteHost {
    /// Starts the thread, which dials the host.
    pub(super) fn start(number: u32, state: &Arc<GroupState>, config: Config) -> Result<Self> {
        let (messages, next) = unbounded_channel();
        let state = state.clone();
        let name = state.layout.host_name(number).to_owned();
        let thread = std::thread::Builder::new().name(format!("to {name}")).spawn(move || {
            let address = &state.layout.hosts[number as usize].address;
            let on_message = |message| state.on_message(number, message);
            let ended = runtime::block_on(exchange(address, config, next, on_message));
            let cause = ended.err().map_or("the pipeline was ended".to_owned(), |e| e.to_string());
            state.on_host_lost(number, &cause);
        });
        let thread = Some(thread.map_err(|e| PipelineError::start(&name, e))?);
        Ok(Self { number, messages: Some(messages), thread })
    }

    /// Sends the host a message.
    pub(super) fn send(&self, message: ToHost) {
        if let Some(messages) = &self.messages {
            // The thread ends only when the host is lost, and reports that itself.
            let _ = messages.send(message);
        }
    }
}

impl Drop for RemoteHost {
    fn drop(&mut self) {
        drop(self.messages.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends messages to a host until there are no more, and passes on what the host sends.
async fn exchange(
    address: &str,
    config: Config,
    mut messages: UnboundedReceiver<ToHost>,
    on_message: impl Fn(FromHost),
) -> NetResult<()> {
    let mut session = Session::connect(address, config).await?;
    request::send_request(&mut session, PIPELINE, &()).await?;
    let (mut sender, mut receiver) = session.into_split();
    let sending = async {
        while let Some(message) = messages.recv().await {
            send(&mut sender, &message).await?;
        }
        sender.finish().await
    };
    let receiving = async {
        loop {
            on_message(receive(&mut receiver).await?);
        }
    };
    tokio::select! {
        sent = sending => sent,
        received = receiving => received,
    }
}

//! The thread that speaks to a host.

use super::shared::Shared;
use crate::pipeline::error::{PipelineError, Result};
use crate::pipeline::remote::{self, ToHost};
use crate::{Config, service};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// A host beyond this process. Dropping it ends the group there.
#[derive(Debug)]
pub struct Remote {
    pub me: u32,
    orders: Option<mpsc::UnboundedSender<ToHost>>,
    thread: Option<JoinHandle<()>>,
}

impl Remote {
    /// Dials it.
    pub fn start(me: u32, shared: &Arc<Shared>, config: Config) -> Result<Self> {
        let (orders, next) = mpsc::unbounded_channel();
        let shared = shared.clone();
        let name = shared.layout.host_name(me).to_owned();
        let thread = std::thread::Builder::new().name(format!("to {name}")).spawn(move || {
            let address = shared.layout.hosts[me as usize].address.clone();
            let hear = shared.clone();
            let ended = service::block_on(remote::command(&address, config, next, move |told| hear.hear(me, told)));
            let why = ended.err().map_or("the pipeline was ended".to_owned(), |e| e.to_string());
            shared.gone(me, &why);
        });
        let thread = Some(thread.map_err(|e| PipelineError::start(&name, e))?);
        Ok(Self { me, orders: Some(orders), thread })
    }

    /// Tells it what to do next.
    pub fn tell(&self, order: ToHost) {
        if let Some(orders) = &self.orders {
            // Its thread ends when the host is gone, and has told so.
            let _ = orders.send(order);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

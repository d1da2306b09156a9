//! Edges within a process: a queue for each direction. Bodies are moved, not copied.

use super::connection::{Connection, Message, Wake};
use super::notifier::Notifier;
use multirail_net::error::{Error, Result};
use multirail_net::sync::lock;
use multirail_proto::pipeline::Transport;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// One end.
#[derive(Debug)]
pub(crate) struct Memory {
    incoming: Arc<Mutex<Queue>>,
    outgoing: Arc<Mutex<Queue>>,
    /// The peer's notifier.
    notifier: Arc<Notifier>,
    pushed: bool,
}

/// Messages in one direction. The owners bound their number, since a producer waits for
/// acknowledgements.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    closed: bool,
}

/// The two ends of a connection, for the owners of the two notifiers.
pub(crate) fn pair(first: &Arc<Notifier>, second: &Arc<Notifier>) -> (Memory, Memory) {
    let (there, back): (Arc<Mutex<Queue>>, Arc<Mutex<Queue>>) = (Arc::default(), Arc::default());
    let end = |incoming: &Arc<Mutex<Queue>>, outgoing: &Arc<Mutex<Queue>>, notifier: &Arc<Notifier>| Memory {
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        notifier: notifier.clone(),
        pushed: false,
    };
    (end(&back, &there, second), end(&there, &back, first))
}

impl Connection for Memory {
    fn transport(&self) -> Transport {
        Transport::Memory
    }

    fn push(&mut self, message: Message) {
        lock(&self.outgoing).messages.push_back(message);
        self.pushed = true;
    }

    fn flush(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.pushed) {
            self.notifier.notify();
        }
        Ok(true)
    }

    fn pull(&mut self) -> Result<Option<Message>> {
        let mut incoming = lock(&self.incoming);
        match incoming.messages.pop_front() {
            None if incoming.closed => Err(Error::Closed),
            message => Ok(message),
        }
    }

    fn sleep(&mut self) -> Result<Wake> {
        Ok(Wake::Notifier)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        lock(&self.outgoing).closed = true;
        self.notifier.notify();
    }
}

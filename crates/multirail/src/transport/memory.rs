//! Within a process: a queue each way. Bodies are handed over, not copied.

use super::{Bell, Connection, Message, Transport, Wake};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One end.
#[derive(Debug)]
pub struct Memory {
    /// What comes.
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
    /// The peer's.
    bell: Arc<Bell>,
    pushed: bool,
}

/// How much is in it is its owners' business: who sends waits for acknowledgements.
#[derive(Debug, Default)]
struct Queue {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    messages: VecDeque<Message>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The two ends of a connection; each wakes the other's owner.
pub fn pair(first: &Arc<Bell>, second: &Arc<Bell>) -> (Memory, Memory) {
    let (there, back) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
    let end = |incoming: &Arc<Queue>, outgoing: &Arc<Queue>, bell: &Arc<Bell>| Memory {
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        bell: bell.clone(),
        pushed: false,
    };
    (end(&back, &there, second), end(&there, &back, first))
}

impl Connection for Memory {
    fn transport(&self) -> Transport {
        Transport::Memory
    }

    fn push(&mut self, message: Message) {
        self.outgoing.lock().messages.push_back(message);
        self.pushed = true;
    }

    fn flush(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.pushed) {
            self.bell.ring();
        }
        Ok(true)
    }

    fn pull(&mut self) -> Result<Option<Message>> {
        let mut incoming = self.incoming.lock();
        match incoming.messages.pop_front() {
            None if incoming.closed => Err(Error::Closed),
            message => Ok(message),
        }
    }

    fn sleep(&mut self) -> Result<Wake> {
        Ok(Wake::Bell)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.outgoing.lock().closed = true;
        self.bell.ring();
    }
}

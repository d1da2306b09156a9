//! A link: one session between two members, with its queue and its task.

mod arrival;
mod buffers;
mod dial;
mod handle;
mod owner;
mod queue;
mod task;

pub(crate) use buffers::Buffers;
pub(crate) use dial::{admit, dial};
pub(crate) use handle::LinkHandle;
pub(crate) use owner::LinkOwner;
pub(crate) use queue::Next;

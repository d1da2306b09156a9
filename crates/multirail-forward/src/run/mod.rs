//! Takes over the connections of a program that knows nothing of multirail.
//!
//! The program runs under a seccomp filter that needs no privileges. The kernel stops each of its
//! calls of `connect` and asks the [`Supervisor`], which either lets the call go on unchanged, or
//! connects the program's own socket to a relay on loopback whose other side is a stream of a session.
//! The socket keeps its options, its number, and its place in `epoll`. Statically linked programs work
//! as well, and so do the program's children.
//!
//! What is not taken over: UDP, `connect` by io_uring, and 32-bit programs on 64-bit kernels.
//!
//! # Races
//!
//! The address is copied once from the program's memory, and what was copied counts. If another thread
//! of the program changes it meanwhile, a call that goes on unchanged uses the new address, as it would
//! without a supervisor. The filter therefore is no security boundary, and is not used as one.

mod filter;
mod guardian;
mod listener;
mod notification;
mod parked;
mod process;
mod sockaddr;
mod supervisor;

pub use filter::{Installed, install};
pub use supervisor::{Outcome, Supervisor};

//! Pipelines whose filters are functions of Python.
//!
//! A function gets [`Streams`](streams::Streams), and reads and writes in a loop. It returns None, or the text of what went
//! wrong. What a buffer means is decided in Python.

pub(crate) mod filter_server;
pub(crate) mod received;
pub(crate) mod run;
pub(crate) mod streams;

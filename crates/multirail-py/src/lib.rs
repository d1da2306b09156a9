#![doc = include_str!("../README.md")]

mod broadcast;
mod channel;
mod config;
mod copy;
mod counters;
mod dlpack;
mod error;
mod exchange;
mod folder;
mod group;
mod job;
mod listener;
mod pipeline;
mod runtime;
mod server;
mod session;
mod status;
mod view;
mod work;

use pyo3::prelude::*;

#[pymodule]
mod _multirail {
    #[pymodule_export]
    use crate::broadcast::{broadcast, start_broadcast};
    #[pymodule_export]
    use crate::channel::slots::{Slot, Slots};
    #[pymodule_export]
    use crate::config::Token;
    #[pymodule_export]
    use crate::copy::{copy, start_copy};
    #[pymodule_export]
    use crate::counters::Counters;
    #[pymodule_export]
    use crate::exchange::exchange;
    #[pymodule_export]
    use crate::folder::Folder;
    #[pymodule_export]
    use crate::group::{BroadcastReceiver, Broadcaster};
    #[pymodule_export]
    use crate::listener::{Listener, listen};
    #[pymodule_export]
    use crate::pipeline::filter_server::serve_filter;
    #[pymodule_export]
    use crate::pipeline::received::Received;
    #[pymodule_export]
    use crate::pipeline::run::{Run, start_run};
    #[pymodule_export]
    use crate::pipeline::streams::{Stopped, Streams};
    #[pymodule_export]
    use crate::server::{Server, serve};
    #[pymodule_export]
    use crate::session::{Session, connect, start_connect};
    #[pymodule_export]
    use crate::status::{Rail, Stats};
    #[pymodule_export]
    use crate::work::{Operation, Wakeups};
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}

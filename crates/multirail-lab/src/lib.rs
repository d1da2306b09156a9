#![doc = include_str!("../README.md")]
#![warn(unreachable_pub)]

mod error;
mod kernel;
mod lab;
mod plan;
mod relay;
mod spec;

pub use error::{Error, Result};
pub use kernel::process::raise_priority;
pub use lab::handle::{Lab, LabSummary};
pub use lab::lifecycle::TakenDown;
pub use lab::links::LinkDirection;
pub use lab::ports::{PortStatus, TrafficCounters};
pub use lab::state::LinkState;
pub use relay::shared::WanCounters;
pub use spec::clusters::Clusters;
pub use spec::link_setting::LinkSetting;
pub use spec::rate::Rate;
pub use spec::topology::{Cluster, LabHost, LabRail, Ports, Topology};
pub use spec::wan::{Delay, Loss, Queue, Wan};

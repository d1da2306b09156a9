//! What a user asks for: hosts, rails, clusters, ports, rates and delays.

pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod clusters;
pub(crate) mod link_setting;
pub(crate) mod names;
mod quantity;
pub(crate) mod rate;
pub(crate) mod topology;
pub(crate) mod wan;

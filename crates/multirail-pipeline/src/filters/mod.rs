//! The kinds of filters that a host can make.

mod built_in;
mod parameters;
mod registry;
mod rehearsal;

pub(crate) use parameters::{Parameters, Size};
pub use registry::Filters;
pub(crate) use rehearsal::{MAX_CHUNKS, PASS_KIND, Request, SOURCE_KIND};

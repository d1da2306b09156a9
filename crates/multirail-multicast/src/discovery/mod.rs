//! Which hosts take part, and which clusters they form.

pub(crate) mod bounds;
pub mod hosts;
pub mod measure;

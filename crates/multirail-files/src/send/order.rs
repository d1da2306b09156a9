//! What is sent, and how.

use crate::options::{OnChange, Terms};
use multirail_tree::filter::Filter;
use multirail_tree::origin::{Origin, Source};
use multirail_tree::report::{Progress, Side};
use std::sync::Arc;

/// The sources of a copy and how to send them.
pub(crate) struct Order {
    pub origin: Origin,
    pub sources: Vec<Source>,
    pub terms: Terms,
    pub filter: Option<Arc<Filter>>,
    /// Is told what would be done.
    pub on_change: Option<OnChange>,
    /// The side of the copy that sends.
    pub side: Side,
    pub progress: Arc<Progress>,
    #[cfg(test)]
    pub tamper: Option<crate::source::Tamper>,
}

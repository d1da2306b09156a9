//! What a server does for pipelines.

use super::layout::EdgeId;
use super::registry::RunRegistry;
use super::service::serve;
use crate::edge::connect::{Arrival, EdgeHandler};
use crate::filters::Filters;
use multirail_net::budget::MemoryBudget;
use multirail_net::request::Request;
use multirail_net::router::{Answering, Next, ProtocolHandler};
use multirail_net::{Config, Error, Session};
use std::net::SocketAddr;
use std::sync::Arc;

/// Serves the protocol [`PIPELINE`](crate::PIPELINE).
///
/// The edges of the same pipelines arrive by [`PIPELINE_EDGE`](crate::PIPELINE_EDGE), which
/// [`PipelineHandler::edges`] serves. A server must register both.
#[derive(Debug)]
pub struct PipelineHandler {
    registry: Arc<RunRegistry>,
}

impl PipelineHandler {
    /// A handler that runs copies of these filters, and dials other hosts with `config`.
    pub fn new(filters: Filters, config: Config) -> Self {
        Self { registry: Arc::new(RunRegistry::new(filters, config, MemoryBudget::default())) }
    }

    /// Sets the budget of queries that wait for their unit of work. No buffer of a pipeline may be longer
    /// than the whole budget. Default [`MemoryBudget::default`].
    ///
    /// # Panics
    ///
    /// If [`edges`](Self::edges) was called before.
    #[must_use]
    pub fn memory_budget(mut self, budget: MemoryBudget) -> Self {
        let registry = Arc::get_mut(&mut self.registry).expect("the budget is set before edges are served");
        registry.budget = budget;
        self
    }

    /// The handler of [`PIPELINE_EDGE`](crate::PIPELINE_EDGE) for the same pipelines.
    pub fn edges(&self) -> EdgeHandler {
        let registry = self.registry.clone();
        EdgeHandler::new(move |arrival: Arrival| match postcard::take_from_bytes::<EdgeId>(arrival.edge()) {
            Ok((id, [])) => registry.accept(id, arrival),
            _ => Err(Error::Protocol("an edge of no pipeline".to_owned())),
        })
    }
}

impl ProtocolHandler for PipelineHandler {
    fn answer<'a>(&'a self, session: Session, _: SocketAddr, request: Request) -> Answering<'a> {
        Box::pin(async move {
            serve(&self.registry, session, request.notes()).await?;
            Ok(Next::Done)
        })
    }
}

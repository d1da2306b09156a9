//! What a server does for benchmarks.

use super::curve;
use super::echo::{cpu_seconds, echo};
use super::request::BenchRequest;
use super::stream::absorb;
use multirail_net::budget::MemoryBudget;
use multirail_net::request::Request;
use multirail_net::router::{Answering, Next, ProtocolHandler};
use multirail_net::{Error, Session, Strategy};
use multirail_pipeline::edge::connect::EdgeHandler;
use std::net::SocketAddr;

/// Serves [`super::BENCH`].
#[derive(Debug, Clone, Default)]
pub(crate) struct BenchHandler {
    budget: MemoryBudget,
}

impl BenchHandler {
    /// A handler whose messages use this budget.
    pub(crate) fn new(budget: MemoryBudget) -> Self {
        Self { budget }
    }
}

/// The handler of [`super::BENCH_EDGE`].
pub(crate) fn edges() -> EdgeHandler {
    EdgeHandler::new(curve::measure_edge)
}

impl ProtocolHandler for BenchHandler {
    fn answer<'a>(&'a self, mut session: Session, _: SocketAddr, request: Request) -> Answering<'a> {
        Box::pin(async move {
            request.notes().operation("bench");
            match request.parse()? {
                BenchRequest::Echo { message_bytes, rounds, strategy, fragment_bytes } => {
                    let strategy: Strategy =
                        strategy.parse().map_err(|e| Error::Protocol(format!("a request for an echo: {e}")))?;
                    let _claim = self.budget.claim(message_bytes)?;
                    echo(&mut session, message_bytes, rounds, strategy, fragment_bytes).await?;
                }
                BenchRequest::Absorb { message_bytes } => {
                    let _claim = self.budget.claim(message_bytes)?;
                    absorb(&mut session, message_bytes).await?;
                }
                BenchRequest::CpuTime => session.send(&cpu_seconds().to_le_bytes()).await?,
            }
            Ok(Next::Request(session))
        })
    }
}

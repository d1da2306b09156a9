//! The nodes of a broadcast, by the method's name.

use super::adaptive::Adaptive;
use super::bandwidths::Bandwidths;
use super::bittorrent::Bittorrent;
use super::members::{MemberId, Members};
use super::method::Method;
use super::mob::Mob;
use super::node::Node;
use super::pieces::{PieceSet, Pieces};
use super::plan::{Plan, PlanError};
use super::planned::Planned;
use super::planned_routes::Routes;
use std::sync::Arc;

/// Whom host `me` is to call as soon as there is a group, so that sessions are there when there is something to send. A node asks for
/// all that it wants in any case.
pub fn early_calls(method: Method, members: &Members, me: MemberId, seed: u64) -> Vec<MemberId> {
    match method {
        Method::Adaptive => super::adaptive::early_calls(members, me, seed),
        // As their papers have it, which begin with the data.
        _ => Vec::new(),
    }
}

/// What the nodes of a broadcast are made from; every host makes the same.
#[derive(Debug, Clone)]
pub struct Nodes {
    method: Method,
    members: Arc<Members>,
    pieces: Pieces,
    seed: u64,
    /// Of the methods that plan.
    routes: Option<Arc<Routes>>,
}

impl Nodes {
    /// `seed` is for the methods that draw, `bandwidths` for those that plan with them.
    pub fn new(
        method: Method,
        members: Arc<Members>,
        pieces: Pieces,
        seed: u64,
        bandwidths: Option<&Bandwidths>,
    ) -> Result<Self, PlanError> {
        let routes = match method {
            Method::Adaptive | Method::Mob | Method::Bittorrent => None,
            Method::Balanced | Method::Fpfr | Method::Magpie | Method::Chain | Method::Flat => {
                let plan = Plan::of(method, &members, bandwidths)?;
                Some(Arc::new(Routes::new(&members, plan, pieces)?))
            }
        };
        Ok(Self { method, members, pieces, seed, routes })
    }

    /// The node of host `me`, which has `held`.
    pub fn node(&self, me: MemberId, held: PieceSet) -> Box<dyn Node> {
        let (members, pieces, seed) = (self.members.clone(), self.pieces, self.seed);
        match (&self.routes, self.method) {
            (Some(routes), _) => Box::new(Planned::new(me, routes.clone(), held)),
            (None, Method::Mob) => Box::new(Mob::new(members, me, pieces, held, seed)),
            (None, Method::Bittorrent) => Box::new(Bittorrent::new(members, me, pieces, held, seed)),
            (None, _) => Box::new(Adaptive::new(members, me, pieces, held, seed)),
        }
    }
}

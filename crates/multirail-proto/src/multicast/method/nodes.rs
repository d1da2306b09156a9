//! Makes the nodes of a broadcast for a method.

use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::{MemberId, Members};
use crate::multicast::method::adaptive::Adaptive;
use crate::multicast::method::bittorrent::Bittorrent;
use crate::multicast::method::mob::Mob;
use crate::multicast::method::planned::Planned;
use crate::multicast::method::planned::routes::Routes;
use crate::multicast::method_name::Method;
use crate::multicast::node::Node;
use crate::multicast::pieces::{PieceSet, Pieces};
use crate::multicast::plan::{Plan, PlanError};
use std::sync::Arc;

/// The peers that host `me` dials as soon as it joins a group, so that sessions exist when data
/// arrives. The node asks for every session that it needs in any case.
pub(crate) fn early_calls(method: Method, members: &Members, me: MemberId, seed: u64) -> Vec<MemberId> {
    match method {
        Method::Adaptive => super::adaptive::early_calls(members, me, seed),
        // The papers of the other methods dial when data arrives.
        _ => Vec::new(),
    }
}

/// What the nodes of a broadcast share. All hosts compute the same.
#[derive(Debug, Clone)]
pub struct Nodes {
    method: Method,
    members: Arc<Members>,
    pieces: Pieces,
    seed: u64,
    /// Present for the methods that plan.
    routes: Option<Arc<Routes>>,
}

impl Nodes {
    /// `seed` is for the methods that draw, `bandwidths` for those that plan with them.
    ///
    /// # Errors
    ///
    /// [`PlanError`], if the method needs a plan and there can be none.
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

//! The node of each method.

use super::options::Bandwidths;
use multirail_proto::multicast::adaptive::Adaptive;
use multirail_proto::multicast::bittorrent::Bittorrent;
use multirail_proto::multicast::mob::Mob;
use multirail_proto::multicast::{
    self as proto, MemberId, Members, Method, Node, PieceSet, Pieces, Plan, Planned, Routes,
};
use std::sync::Arc;

/// A host's node, or why there is none.
pub(super) fn node_for(
    method: Method,
    members: &Arc<Members>,
    me: MemberId,
    pieces: Pieces,
    held: PieceSet,
    seed: u64,
    bandwidths: Option<&Bandwidths>,
) -> Result<Box<dyn Node>, String> {
    let members = members.clone();
    match method {
        Method::Adaptive => Ok(Box::new(Adaptive::new(members, me, pieces, held, seed))),
        Method::Mob => Ok(Box::new(Mob::new(members, me, pieces, held, seed))),
        Method::Bittorrent => Ok(Box::new(Bittorrent::new(members, me, pieces, held, seed))),
        Method::Balanced | Method::Fpfr | Method::Magpie | Method::Chain | Method::Flat => {
            let bandwidths = bandwidths.map(|b| proto::Bandwidths {
                link_bytes_s: b.link_bytes_s.clone(),
                access_bytes_s: b.access_bytes_s.clone(),
            });
            let plan = Plan::of(method, &members, bandwidths.as_ref()).map_err(|e| e.to_string())?;
            let routes = Routes::new(&members, plan, pieces).map_err(|e| e.to_string())?;
            Ok(Box::new(Planned::new(me, Arc::new(routes), held)))
        }
    }
}

//! The method `adaptive`, the default: MOB ([`super::mob`]) with these changes.
//!
//! - **Requests follow the path.** A peer that has sent everything it was asked for says so, and
//!   gets a larger request. The five requests of the paper do not fill a round trip of 100 ms.
//! - **Rarest piece first across clusters.** A host tells its peers in other clusters which pieces
//!   it is fetching from the root's cluster. The root's links then carry each piece to one cluster
//!   first, and the other clusters get it from there.
//! - **Shares move.** A host with nothing left to fetch asks a neighbour for half of the
//!   neighbour's rest. The next host by rank takes over the share of a host that died.
//! - **As many hosts fetch as the links carry.** At first a few of a cluster. Where the hosts' own access is the limit,
//!   all of them ([`recruit`]).
//! - **End game.** A piece that waits in the queue of a slow peer is also requested from a faster
//!   idle peer.
//!
//! - **Clusters may change** while pieces move, so that a broadcast begins before they are measured.
//!
//! Every piece still enters each cluster once, except for pieces that are requested again because
//! they do not arrive.

mod choose;
mod fetchers;
mod find;
mod node;
mod peer;
mod recruit;
mod regroup;
mod relays;
mod shares;
mod spread;
mod trial;

pub(crate) use find::early_calls;
pub(crate) use node::Adaptive;

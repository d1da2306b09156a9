//! Balanced Multicasting (MOB paper, section 2.4): several trees, whose rates use links and hosts up to what they can carry
//! and no further.
//!
//! The paper leaves out how its trees are found. Here: candidates ([`super::balanced_candidates`]), then a linear program for
//! their rates. With four clusters the candidates are all trees there are, so that the result is the best there is.

use super::balanced_candidates::candidates;
use super::bandwidths::Bandwidths;
use super::members::Members;
use super::plan::{MAX_TREES, PlanError, Tree};
use super::trees::{ClusterTree, chain, gateway, over_hosts};
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use std::collections::BTreeMap;

/// Most variables of the linear program.
const MAX_CANDIDATES: usize = 4096;
/// A tree with a smaller part of the whole than this is left out: it is nothing but rounding.
const LEAST_SHARE: f64 = 1e-6;

/// What has a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    Link(usize, usize),
    HostOut(u32),
    HostIn(u32),
}

/// A tree over clusters, and which hosts speak for them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    clusters: ClusterTree,
    turn: usize,
}

/// The trees and their rates.
pub(super) fn trees(members: &Members, bandwidths: &Bandwidths) -> Result<Vec<Tree>, PlanError> {
    if members.clusters().len() == 1 {
        return Ok(vec![chain(members)]);
    }
    let mut rated = rated(members, bandwidths)?;
    rated.sort_by(|(one, r1), (two, r2)| r2.total_cmp(r1).then_with(|| one.cmp(two)));
    rated.truncate(MAX_TREES);
    let tree = |(place, (candidate, rate)): (usize, (Candidate, f64))| {
        // Where hosts are no limit, turns are free: each tree has its own.
        let turn = if bandwidths.access_bytes_s.is_some() { candidate.turn } else { place };
        Tree { parent: over_hosts(members, &candidate.clusters, turn), rate_bytes_s: Some(rate) }
    };
    Ok(rated.into_iter().enumerate().map(tree).collect())
}

/// Those of the candidates that get a rate, with it.
fn rated(members: &Members, bandwidths: &Bandwidths) -> Result<Vec<(Candidate, f64)>, PlanError> {
    let trees = candidates(members, bandwidths)?;
    let turns = match bandwidths.access_bytes_s {
        None => 1,
        Some(_) => {
            let largest = members.clusters().iter().map(Vec::len).max().unwrap_or(1);
            largest.min(MAX_CANDIDATES / trees.len()).max(1)
        }
    };
    let of_turn = |turn| trees.iter().map(move |clusters| Candidate { clusters: clusters.clone(), turn });
    let candidates: Vec<Candidate> = (0..turns).flat_map(of_turn).collect();
    let uses: Vec<BTreeMap<Resource, f64>> = candidates.iter().map(|one| one.uses(members, bandwidths)).collect();
    let mut rates = solve(&candidates, &uses, bandwidths)?;

    // The solver keeps limits within its tolerance; the plan keeps them.
    let excess = loads(&uses, &rates).into_iter().map(|(resource, load)| load / resource.capacity(bandwidths));
    let excess = excess.fold(1.0, f64::max);
    let total: f64 = rates.iter().sum();
    if !(excess.is_finite() && total > 0.0) {
        let reached = "hosts can carry nothing between clusters, or the solver gave up";
        return Err(PlanError::Rates(reached.to_owned()));
    }
    rates.iter_mut().for_each(|rate| *rate /= excess);
    Ok(candidates.into_iter().zip(rates).filter(|(_, rate)| *rate > total * LEAST_SHARE).collect())
}

/// The rates with the largest sum.
fn solve(
    candidates: &[Candidate],
    uses: &[BTreeMap<Resource, f64>],
    bandwidths: &Bandwidths,
) -> Result<Vec<f64>, PlanError> {
    let all = uses.iter().flat_map(|uses| uses.keys());
    // In units of the largest capacity: the solver's tolerance is absolute.
    let unit = all.map(|resource| resource.capacity(bandwidths)).fold(0.0, f64::max);
    if unit <= 0.0 {
        return Err(PlanError::Rates("no capacity at all".to_owned()));
    }
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut limits: BTreeMap<Resource, Vec<_>> = BTreeMap::new();
    let mut variables = Vec::with_capacity(candidates.len());
    for (candidate, uses) in candidates.iter().zip(uses) {
        // Of equal sums, the one whose trees are shallow: data is there sooner. Too little to change the sum.
        let variable = problem.add_var(1.0 - 1e-6 * candidate.depth(), (0.0, f64::INFINITY));
        variables.push(variable);
        uses.iter().for_each(|(resource, times)| limits.entry(*resource).or_default().push((variable, *times)));
    }
    for (resource, users) in limits {
        problem.add_constraint(users, ComparisonOp::Le, resource.capacity(bandwidths) / unit);
    }
    let solution = problem.solve().map_err(|e| PlanError::Rates(e.to_string()))?;
    Ok(variables.into_iter().map(|variable| solution.var_value(variable).max(0.0) * unit).collect())
}

/// What each resource carries, bytes/s.
fn loads(uses: &[BTreeMap<Resource, f64>], rates: &[f64]) -> BTreeMap<Resource, f64> {
    let mut loads = BTreeMap::new();
    for (uses, rate) in uses.iter().zip(rates).filter(|(_, rate)| **rate > 0.0) {
        for (resource, times) in uses {
            *loads.entry(*resource).or_insert(0.0) += times * rate;
        }
    }
    loads
}

impl Resource {
    /// In bytes/s. Hosts are asked for only where they are a limit.
    fn capacity(self, bandwidths: &Bandwidths) -> f64 {
        match self {
            Resource::Link(from, to) => bandwidths.link(from, to),
            Resource::HostOut(host) | Resource::HostIn(host) => {
                bandwidths.access_bytes_s.as_ref().map_or(f64::INFINITY, |access| access[host as usize])
            }
        }
    }
}

impl Candidate {
    /// What it takes of every resource, as a multiple of its rate.
    fn uses(&self, members: &Members, bandwidths: &Bandwidths) -> BTreeMap<Resource, f64> {
        let mut uses = BTreeMap::new();
        for (to, from) in self.clusters.iter().enumerate() {
            let Some(from) = from.map(|from| from as usize) else { continue };
            let mut take = |resource| *uses.entry(resource).or_insert(0.0) += 1.0;
            take(Resource::Link(from, to));
            if bandwidths.access_bytes_s.is_some() {
                take(Resource::HostOut(gateway(members, from, self.turn)));
                take(Resource::HostIn(gateway(members, to, self.turn)));
            }
        }
        uses
    }

    /// The mean number of links from the root to a cluster, as a part of the most there can be.
    fn depth(&self) -> f64 {
        let hops = |cluster: usize| {
            let way = std::iter::successors(Some(cluster), |at| self.clusters[*at].map(|from| from as usize));
            way.count() - 1
        };
        let count = self.clusters.len();
        (0..count).map(hops).sum::<usize>() as f64 / (count * count) as f64
    }
}

#[cfg(test)]
#[path = "balanced_tests.rs"]
mod tests;

//! Balanced Multicasting (MOB paper, section 2.4): several trees with rates that use links and
//! hosts up to their capacity and no further. The paper does not state how it finds its trees.
//! Here, candidates are chosen first ([`candidates`]), and a linear program sets their rates. Up to
//! five clusters, the candidates are all trees.

mod candidates;
mod shortest;

use crate::multicast::bandwidths::Bandwidths;
use crate::multicast::members::Members;
use crate::multicast::plan::fpfr;
use crate::multicast::plan::shapes::{ClusterTree, chain, gateway, over_hosts};
use crate::multicast::plan::tree::{MAX_TREES, PlanError, Tree};
use candidates::candidates;
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use std::collections::BTreeMap;

/// The most links of all candidates together when each tree occurs with several choices of hosts.
/// The linear program takes long with more.
const MAX_LINKS: usize = 30_000;
/// A tree with a smaller part of the total rate than this is left out: it is a rounding error.
const LEAST_SHARE: f64 = 1e-6;

/// What has a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    Link(usize, usize),
    HostOut(u32),
    HostIn(u32),
}

/// How often each resource is used.
type Uses = BTreeMap<Resource, f64>;

/// A tree over clusters, and the hosts that talk for the clusters.
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
        // Where hosts are not a limit, turns cost nothing: each tree has its own.
        let turn = if bandwidths.access_bytes_s.is_some() { candidate.turn } else { place };
        Tree { parent: over_hosts(members, &candidate.clusters, turn), rate_bytes_s: Some(rate) }
    };
    Ok(rated.into_iter().enumerate().map(tree).collect())
}

/// The candidates that get a rate, with the rate.
fn rated(members: &Members, bandwidths: &Bandwidths) -> Result<Vec<(Candidate, f64)>, PlanError> {
    let simple = fpfr::cluster_trees(members, bandwidths)?;
    let candidates = with_turns(members, bandwidths, candidates(members, bandwidths, &simple));
    let uses: Vec<Uses> = candidates.iter().map(|one| one.uses(members, bandwidths)).collect();
    let rates = fit(&uses, solve(&candidates, &uses, bandwidths)?, bandwidths);

    // With many clusters, the candidates are few of all trees, and the rates of FPFR may be better.
    let (simple, simple_rates): (Vec<_>, Vec<_>) = simple.into_iter().unzip();
    let simple: Vec<Candidate> =
        simple.into_iter().enumerate().map(|(turn, clusters)| Candidate { clusters, turn }).collect();
    let simple_uses: Vec<Uses> = simple.iter().map(|one| one.uses(members, bandwidths)).collect();
    let simple_rates = fit(&simple_uses, simple_rates, bandwidths);

    let sum = |rates: &[f64]| -> f64 { rates.iter().sum() };
    let best = if sum(&rates) >= sum(&simple_rates) { (candidates, rates) } else { (simple, simple_rates) };
    let total = sum(&best.1);
    if total.is_nan() || total <= 0.0 {
        return Err(PlanError::Rates("hosts carry nothing between clusters".to_owned()));
    }
    Ok(best.0.into_iter().zip(best.1).filter(|(_, rate)| *rate > total * LEAST_SHARE).collect())
}

/// Every tree with several choices of hosts, if hosts are a limit. With few trees, each occurs for
/// every host of the largest cluster; with many, all together do.
fn with_turns(members: &Members, bandwidths: &Bandwidths, trees: Vec<ClusterTree>) -> Vec<Candidate> {
    let largest = members.clusters().iter().map(Vec::len).max().unwrap_or(1);
    let turns = match bandwidths.access_bytes_s {
        None => 1,
        Some(_) => largest.min(MAX_LINKS / (trees.len() * members.clusters().len())).max(1),
    };
    let of_tree = |(place, clusters): (usize, ClusterTree)| {
        let turn = move |turn| (place * turns + turn) % largest;
        (0..turns).map(move |one| Candidate { clusters: clusters.clone(), turn: turn(one) })
    };
    trees.into_iter().enumerate().flat_map(of_tree).collect()
}

/// Scales all rates down so that no capacity is exceeded: the solver keeps limits only within its
/// tolerance.
fn fit(uses: &[Uses], mut rates: Vec<f64>, bandwidths: &Bandwidths) -> Vec<f64> {
    let excess = loads(uses, &rates).into_iter().map(|(resource, load)| load / resource.capacity(bandwidths));
    let excess = excess.fold(1.0, f64::max);
    rates.iter_mut().for_each(|rate| *rate /= excess);
    rates
}

/// The rates with the largest sum.
fn solve(candidates: &[Candidate], uses: &[Uses], bandwidths: &Bandwidths) -> Result<Vec<f64>, PlanError> {
    let all = uses.iter().flat_map(|uses| uses.keys());
    // In units of the largest capacity, since the solver's tolerance is absolute.
    let unit = all.map(|resource| resource.capacity(bandwidths)).fold(0.0, f64::max);
    if unit <= 0.0 {
        return Err(PlanError::Rates("no capacity at all".to_owned()));
    }
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut limits: BTreeMap<Resource, Vec<_>> = BTreeMap::new();
    let mut variables = Vec::with_capacity(candidates.len());
    for (candidate, uses) in candidates.iter().zip(uses) {
        // Of equal sums, prefer shallow trees, which bring data sooner. The weight is too small to
        // change the sum.
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

/// The capacity of each resource in bytes/s.
fn loads(uses: &[Uses], rates: &[f64]) -> BTreeMap<Resource, f64> {
    let mut loads = BTreeMap::new();
    for (uses, rate) in uses.iter().zip(rates).filter(|(_, rate)| **rate > 0.0) {
        for (resource, times) in uses {
            *loads.entry(*resource).or_insert(0.0) += times * rate;
        }
    }
    loads
}

impl Resource {
    /// The capacity in bytes/s. Hosts count only where they are a limit.
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
    /// The use of every resource, as a multiple of the rate.
    fn uses(&self, members: &Members, bandwidths: &Bandwidths) -> Uses {
        let mut uses = Uses::new();
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

    /// The mean number of links from the root to a cluster, as a fraction of the maximum.
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
mod tests;

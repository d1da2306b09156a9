//! The maximum flow through a network (Edmonds and Karp 1972, with levels as Dinic 1970).

use std::collections::VecDeque;

/// A network of numbered nodes and links between them.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    /// For each node, the numbers of the links from it.
    from: Vec<Vec<usize>>,
    /// The target and the capacity left. The reverse link has the number with the last bit flipped.
    links: Vec<(usize, f64)>,
}

impl Network {
    pub(super) fn new(nodes: usize) -> Self {
        Self { from: vec![Vec::new(); nodes], links: Vec::new() }
    }

    /// Adds a link of this capacity, which may be infinite.
    pub(super) fn link(&mut self, from: usize, to: usize, capacity: f64) {
        if capacity > 0.0 {
            self.from[from].push(self.links.len());
            self.links.push((to, capacity));
            self.from[to].push(self.links.len());
            self.links.push((from, 0.0));
        }
    }

    /// The maximum flow from one node to another; infinite if a way has no limit.
    pub(super) fn max_flow(mut self, source: usize, sink: usize) -> f64 {
        if source == sink {
            return f64::INFINITY;
        }
        // What is left of a sum after subtracting its parts is no capacity.
        let largest = self.links.iter().map(|link| link.1).filter(|c| c.is_finite()).fold(0.0, f64::max);
        let nothing = largest * 1e-12;
        let mut total = 0.0;
        while let Some(level) = self.levels(source, sink, nothing) {
            let mut next = vec![0; self.from.len()];
            while let Some(flow) = self.push(source, sink, nothing, &level, &mut next) {
                if flow.is_infinite() {
                    return f64::INFINITY;
                }
                total += flow;
            }
        }
        total
    }

    /// For each node, its distance in links from the source; `None` if the sink is not reached.
    fn levels(&self, source: usize, sink: usize, nothing: f64) -> Option<Vec<usize>> {
        let mut level = vec![usize::MAX; self.from.len()];
        level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(at) = queue.pop_front() {
            for link in &self.from[at] {
                let (to, left) = self.links[*link];
                if left > nothing && level[to] == usize::MAX {
                    level[to] = level[at] + 1;
                    queue.push_back(to);
                }
            }
        }
        (level[sink] != usize::MAX).then_some(level)
    }

    /// Sends as much as fits along one way of growing levels. `next` holds for each node the first
    /// of its links that may still lead on.
    fn push(&mut self, source: usize, sink: usize, nothing: f64, level: &[usize], next: &mut [usize]) -> Option<f64> {
        let mut way: Vec<usize> = Vec::new();
        loop {
            let at = way.last().map_or(source, |link| self.links[*link].0);
            if at == sink {
                break;
            }
            let open = self.from[at][next[at]..].iter().position(|link| {
                let (to, left) = self.links[*link];
                left > nothing && level[to] == level[at] + 1
            });
            match open {
                Some(skipped) => {
                    next[at] += skipped;
                    way.push(self.from[at][next[at]]);
                }
                None => {
                    // A dead end: the link to it is not tried again.
                    next[at] = self.from[at].len();
                    let link = way.pop()?;
                    next[self.links[link ^ 1].0] += 1;
                }
            }
        }
        let flow = way.iter().map(|link| self.links[*link].1).fold(f64::INFINITY, f64::min);
        for link in way {
            self.links[link].1 -= flow;
            self.links[link ^ 1].1 += flow;
        }
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The largest flow is the smallest cut.
        #[test]
        fn the_flow_is_the_smallest_cut(nodes in 2usize..7, links in prop::collection::vec((0usize..7, 0usize..7, 0u32..20), 0..30)) {
            let links: Vec<_> = links.into_iter().map(|(from, to, c)| (from % nodes, to % nodes, f64::from(c) / 4.0)).collect();
            let mut network = Network::new(nodes);
            links.iter().for_each(|(from, to, capacity)| network.link(*from, *to, *capacity));
            // Node 0 is on the near side, node 1 on the far side.
            let cut = |side: u32| -> f64 {
                let near = |node: usize| node == 0 || (node > 1 && side & (1 << node) != 0);
                links.iter().filter(|(from, to, _)| near(*from) && !near(*to)).map(|link| link.2).sum()
            };
            let least = (0..1u32 << nodes).map(cut).fold(f64::INFINITY, f64::min);
            prop_assert!((network.max_flow(0, 1) - least).abs() < 1e-9);
        }
    }

    #[test]
    fn ways_without_limit_are_infinite() {
        let mut network = Network::new(3);
        network.link(0, 1, f64::INFINITY);
        network.link(1, 2, 5.0);
        assert_eq!(network.clone().max_flow(0, 2), 5.0);
        assert_eq!(network.max_flow(0, 1), f64::INFINITY);
    }
}

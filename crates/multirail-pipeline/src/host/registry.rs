//! The groups that a server takes part in.

use super::layout::{EdgeId, Layout, RunId};
use super::messages::{FilterKind, ToHost};
use super::prepared::PreparedHost;
use crate::edge::connect::Arrival;
use crate::filters::Filters;
use crate::runtime::MakeFilter;
use multirail_net::Config;
use multirail_net::budget::MemoryBudget;
use multirail_net::error::Result;
use multirail_net::permissions::Permissions;
use multirail_net::sync::lock;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Groups that a server takes part in at a time.
const MAX_RUNS: usize = 64;
/// Copies of a group on this host; each is a thread.
const MAX_COPIES: usize = 256;
/// How long an edge waits for its group, since the coordinator's session may be slower.
const RUN_TIMEOUT: Duration = Duration::from_secs(3);
/// How often an edge looks for its group.
const RUN_POLL: Duration = Duration::from_millis(10);

/// The groups of a server.
#[derive(Debug)]
pub(super) struct RunRegistry {
    filters: Filters,
    pub config: Config,
    pub budget: MemoryBudget,
    runs: Mutex<HashMap<RunId, Arc<PreparedHost>>>,
}

/// A group in the registry. Dropping it removes the group.
#[derive(Debug)]
pub(super) struct RegisteredRun<'a> {
    registry: &'a RunRegistry,
    run: RunId,
}

impl RunRegistry {
    /// The registry of a server that can make these filters and dials other hosts with `config`.
    pub(super) fn new(filters: Filters, config: Config, budget: MemoryBudget) -> Self {
        Self { filters, config, budget, runs: Mutex::default() }
    }

    /// Passes an edge that another host has dialled to its group. It blocks for some seconds at
    /// most.
    pub(super) fn accept(&self, id: EdgeId, arrival: Arrival) -> Result<()> {
        let until = Instant::now() + RUN_TIMEOUT;
        loop {
            let host = lock(&self.runs).get(&id.run).cloned();
            match host {
                Some(host) => return host.accept(id, arrival),
                None if Instant::now() > until => return arrival.refuse("this host takes part in no such group"),
                None => std::thread::sleep(RUN_POLL),
            }
        }
    }

    /// Adds a group, and makes the makers of the filters that have a copy on this host.
    pub(super) fn add(
        &self,
        layout: Layout,
        me: u32,
        kinds: Vec<FilterKind>,
        permissions: &Permissions,
    ) -> Result<(RegisteredRun<'_>, Arc<PreparedHost>, Vec<MakeFilter>), String> {
        let filters = layout.graph.filters();
        let is_host = me != 0 && (me as usize) < layout.hosts.len();
        if !is_host || kinds.len() != filters.len() || !layout.is_consistent() {
            return Err("the parts of the group do not fit together".to_owned());
        }
        if permissions.rate_limit().is_some() {
            return Err("the server limits the rate of this key, and cannot do so in pipelines".to_owned());
        }
        let (wanted, most) = (layout.limit_bytes, self.budget.limit_bytes());
        if wanted > most {
            return Err(format!("buffers of {wanted} bytes are too long for this server, which allows {most}"));
        }
        let copies: usize = filters.iter().map(|f| f.hosts.iter().filter(|h| **h == me).count()).sum();
        if copies > MAX_COPIES {
            return Err(format!("{copies} copies are too many for this server, which allows {MAX_COPIES}"));
        }
        let known = self.filters.of_client(permissions);
        let mut makers = Vec::new();
        for (node, kind) in filters.iter().zip(kinds) {
            makers.push(if node.hosts.contains(&me) {
                let parameters = serde_json::from_str(&kind.parameters).map_err(|e| e.to_string())?;
                known.maker(&kind.kind, parameters).map_err(|e| e.to_string())?
            } else {
                Filters::not_here()
            });
        }
        let run = layout.run;
        let host = PreparedHost::new(Arc::new(layout), me).map_err(|e| e.to_string())?;
        let mut runs = lock(&self.runs);
        if runs.contains_key(&run) {
            return Err("this server takes part in a pipeline of that name already".to_owned());
        }
        if runs.len() >= MAX_RUNS {
            return Err(format!("this server takes part in {MAX_RUNS} pipelines; try again later"));
        }
        runs.insert(run, host.clone());
        Ok((RegisteredRun { registry: self, run }, host, makers))
    }
}

/// Takes arbitrary bytes for the first message of a coordinator, and makes what it asks for: for
/// fuzzing. Nothing is read or written, and no thread is started.
#[doc(hidden)]
pub fn prepare_any(bytes: &[u8]) {
    static REGISTRY: LazyLock<RunRegistry> = LazyLock::new(|| {
        let filters = Filters::built_in(Path::new("/nonexistent"));
        RunRegistry::new(filters, Config::new(), MemoryBudget::new(1 << 20))
    });
    let Ok(ToHost::Prepare { layout, me, kinds }) = postcard::from_bytes(bytes) else { return };
    let Ok((_registered, host, makers)) = REGISTRY.add(layout, me, kinds, &Permissions::default()) else { return };
    for (filter, make) in makers.iter().enumerate() {
        for info in host.copies_of(filter) {
            assert!(info.limit_bytes <= REGISTRY.budget.limit_bytes());
            let _ = make(&info);
        }
    }
}

impl Drop for RegisteredRun<'_> {
    fn drop(&mut self) {
        lock(&self.registry.runs).remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostEntry;
    use multirail_proto::pipeline::{FilterNode, Graph};

    fn layout() -> (Layout, Vec<FilterKind>) {
        let filter = FilterNode { name: "f".to_owned(), hosts: vec![1], stateless: false };
        let layout = Layout {
            run: RunId([7; 16]),
            graph: Graph::new(vec![filter], Vec::new()).unwrap(),
            hosts: ["a", "b"].map(|name| HostEntry { name: name.to_owned(), address: String::new() }).to_vec(),
            transports: Vec::new(),
            chunk_bytes: 1 << 10,
            limit_bytes: 1 << 20,
            host_timeout: Duration::from_secs(1),
        };
        (layout, vec![FilterKind { kind: "generate".to_owned(), parameters: r#"{"bytes": 1}"#.to_owned() }])
    }

    /// The end of the second group would remove the first one.
    #[test]
    fn a_second_group_of_the_same_name_is_refused() {
        let filters = Filters::built_in(Path::new("/nonexistent"));
        let registry = RunRegistry::new(filters, Config::new(), MemoryBudget::default());
        let add = || {
            let (layout, kinds) = layout();
            registry.add(layout, 1, kinds, &Permissions::default())
        };
        let first = add();
        assert!(first.is_ok());
        assert!(add().is_err_and(|why| why.contains("already")));
        assert_eq!(lock(&registry.runs).len(), 1);
        drop(first);
        assert!(add().is_ok());
    }
}

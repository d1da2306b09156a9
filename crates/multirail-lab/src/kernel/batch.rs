//! Batches of `ip` and `tc` subcommands. One process runs many of them, so a lab is up in a moment.

use crate::error::Result;
use crate::kernel::command::{run, run_batch};
use crate::plan::port::PlannedPort;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The queue of a TAP device, in packets. It is longer than what TCP and a burst of UDP send while
/// the relay waits for a processor.
const TAP_QUEUE_PACKETS: u32 = 10_000;
/// The filter that drops all packets. Its preference and handle identify it for removal.
const CUT_FILTER: &str = "pref 1 handle 0xc07 protocol all bpf";
/// The link group of all ports. The kernel deletes a group at once, while the deletion of each
/// single port waits for a grace period.
const PORT_GROUP: u32 = 0x6d72;

/// Removes the name of a namespace, also where a crash left a file that is no namespace.
pub(crate) fn delete_namespace(namespace: &str) -> Result<()> {
    run("ip", &["netns", "delete", namespace]).map(|_| ())
}

/// Runs batches at the same time, so that related changes take effect together. Waits for all of
/// them and returns the first error.
pub(crate) fn run_all<'a>(batches: impl Iterator<Item = &'a Batch<'a>>) -> Result<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> = batches.map(|batch| scope.spawn(|| batch.run())).collect();
        let done = running.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        done.fold(Ok(()), Result::and)
    })
}

/// Subcommands for one namespace. Those of `ip` run before those of `tc`.
pub(crate) struct Batch<'a> {
    /// `None` is the namespace of the caller.
    namespace: Option<&'a str>,
    ip: String,
    tc: String,
}

impl<'a> Batch<'a> {
    /// A batch for the namespace of the caller. It creates namespaces and the pairs between them.
    pub(crate) fn initial() -> Self {
        Self { namespace: None, ip: String::new(), tc: String::new() }
    }

    pub(crate) fn in_namespace(namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ip: String::new(), tc: String::new() }
    }

    pub(crate) fn run(&self) -> Result<()> {
        run_batch("ip", self.namespace, &self.ip)?;
        run_batch("tc", self.namespace, &self.tc)
    }

    pub(crate) fn add_namespace(&mut self, namespace: &str) {
        self.ip(format!("netns add {namespace}"));
    }

    pub(crate) fn add_pair(&mut self, one: &PlannedPort, other: &PlannedPort, mtu_bytes: u32) {
        let end = |port: &PlannedPort| {
            let PlannedPort { name, index, namespace, .. } = port;
            format!("name {name} index {index} mtu {mtu_bytes} group {PORT_GROUP} netns {namespace}")
        };
        self.ip(format!("link add {} type veth peer {}", end(one), end(other)));
    }

    pub(crate) fn add_bridge(&mut self, bridge: &str, mtu_bytes: u32) {
        self.ip(format!("link add name {bridge} mtu {mtu_bytes} type bridge"));
        self.set_up(bridge);
    }

    pub(crate) fn join_bridge(&mut self, port: &str, bridge: &str) {
        self.ip(format!("link set dev {port} master {bridge}"));
    }

    pub(crate) fn add_ipv4(&mut self, port: &str, address: Ipv4Addr, network_bits: u8) {
        self.ip(format!("address add {address}/{network_bits} broadcast + dev {port}"));
    }

    /// Adds an address without duplicate address detection, which would delay its use by a second.
    pub(crate) fn add_ipv6(&mut self, port: &str, address: Ipv6Addr) {
        self.ip(format!("address add {address}/64 dev {port} nodad"));
    }

    pub(crate) fn set_mac(&mut self, port: &str, mac: &str) {
        self.ip(format!("link set dev {port} address {mac}"));
    }

    /// Adds a permanent neighbour entry. The kernel sends no ARP request for it and never drops it.
    pub(crate) fn add_neighbour(&mut self, port: &str, address: Ipv4Addr, mac: &str) {
        self.ip(format!("neighbour replace {address} lladdr {mac} nud permanent dev {port}"));
    }

    /// Adds a route to a network or to `default`.
    pub(crate) fn add_route(&mut self, to: &str, via: Ipv4Addr, port: &str) {
        self.ip(format!("route replace {to} via {via} dev {port}"));
    }

    pub(crate) fn set_up(&mut self, port: &str) {
        self.ip(format!("link set dev {port} up"));
    }

    pub(crate) fn set_down(&mut self, port: &str) {
        self.ip(format!("link set dev {port} down"));
    }

    pub(crate) fn delete_all_ports(&mut self) {
        self.ip(format!("link delete group {PORT_GROUP}"));
    }

    /// Sets the properties that a new TAP device lacks. Its queue holds packets until the relay
    /// reads them, and is not the queue of the rail.
    pub(crate) fn prepare_tap(&mut self, port: &str, mtu_bytes: u32) {
        self.ip(format!("link set dev {port} mtu {mtu_bytes} txqueuelen {TAP_QUEUE_PACKETS} group {PORT_GROUP}"));
    }

    /// Drops every packet that arrives. The sender sees no error and keeps its carrier.
    ///
    /// The filter is one BPF instruction (return TC_ACT_SHOT). It needs only cls_bpf, while some
    /// kernels lack matchall and gact. It is the first filter of the ingress hook, and does not
    /// touch other filters or the egress hook.
    pub(crate) fn cut(&mut self, port: &str) {
        self.tc(format!("qdisc replace dev {port} clsact"));
        self.add_cut_filter(port, "ingress");
    }

    /// Ends [`Batch::cut`].
    pub(crate) fn restore(&mut self, port: &str) {
        self.delete_cut_filter(port, "ingress");
    }

    /// Drops every packet that arrives and every packet that would leave.
    pub(crate) fn cut_both_ways(&mut self, port: &str) {
        self.cut(port);
        self.add_cut_filter(port, "egress");
    }

    /// Ends [`Batch::cut_both_ways`].
    pub(crate) fn restore_both_ways(&mut self, port: &str) {
        self.restore(port);
        self.delete_cut_filter(port, "egress");
    }

    fn add_cut_filter(&mut self, port: &str, hook: &str) {
        self.tc(format!("filter replace dev {port} {hook} {CUT_FILTER} direct-action bytecode '1,6 0 0 2'"));
    }

    fn delete_cut_filter(&mut self, port: &str, hook: &str) {
        self.tc(format!("filter delete dev {port} {hook} {CUT_FILTER}"));
    }

    /// Adds a subcommand of `ip`.
    pub(super) fn ip(&mut self, line: String) {
        self.ip.push_str(&line);
        self.ip.push('\n');
    }

    /// Adds a subcommand of `tc`.
    pub(super) fn tc(&mut self, line: String) {
        self.tc.push_str(&line);
        self.tc.push('\n');
    }

    /// The subcommands of `tc` so far.
    #[cfg(test)]
    pub(super) fn tc_lines(&self) -> &str {
        &self.tc
    }
}

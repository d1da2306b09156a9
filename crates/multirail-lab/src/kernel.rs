//! Every call of `ip` and `tc`. Many commands go to one process by `-batch`, so that a lab is up in a moment.

use crate::error::{Error, Result};
use crate::plan::Port;
use crate::shaping::{Access, Egress, Netem, Shaping, Side};
use crate::wan::{Delay, Queue, Wan};
use nix::errno::Errno;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// More than TCP and a burst of UDP have under way while the relay is kept from running.
const TAP_QUEUE_PACKETS: u32 = 10_000;
/// What a silent cut is found by when it is healed.
const CUT_FILTER: &str = "pref 1 handle 0xc07 protocol all bpf";
/// The link group of all ports, by which they are deleted at once: each deletion by itself waits for a grace period.
const PORT_GROUP: u32 = 0x6d72;
/// The kernel's own limit for a device that does not say otherwise.
const GSO_MAX_SEGS_DEFAULT: u32 = 65_535;

/// Whether both commands can be run. Asked before anything is made.
pub(crate) fn check_commands() -> Result<()> {
    for command in ["ip", "tc"] {
        run(Command::new(command).arg("-V"), command, "")?;
    }
    Ok(())
}

/// Removes a namespace's name, also where a crash left only the file.
pub(crate) fn delete_namespace(namespace: &str) -> Result<()> {
    run(Command::new("ip").args(["netns", "delete", namespace]), "ip", "").map(|_| ())
}

/// All at once, so that what belongs together changes together.
pub(crate) fn run_all<'a>(batches: impl Iterator<Item = &'a Batch<'a>>) -> Result<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> = batches.map(|batch| scope.spawn(|| batch.run())).collect();
        let done = running.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // The first error, once all have ended.
        done.fold(Ok(()), Result::and)
    })
}

/// What left a port by its shaping, and what found the queue full.
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub(crate) struct PortCounters {
    #[serde(rename = "dev")]
    pub(crate) port: String,
    pub(crate) root: Option<bool>,
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) drops: u64,
}

/// Of all shaped ports in a namespace.
pub(crate) fn port_counters(namespace: &str) -> Result<Vec<PortCounters>> {
    let text = run(Command::new("tc").args(["-netns", namespace, "-s", "-j", "qdisc", "show"]), "tc", "")?;
    let mut counters: Vec<PortCounters> = serde_json::from_slice(&text)
        .map_err(|e| Error::Command { command: "tc -s -j qdisc show".into(), stderr: e.to_string() })?;
    counters.retain(|counters| counters.root == Some(true));
    Ok(counters)
}

/// An interface, and what it has carried.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct Interface {
    #[serde(rename = "ifname")]
    pub(crate) name: String,
    #[serde(rename = "address")]
    pub(crate) mac: String,
    #[serde(rename = "stats64")]
    pub(crate) stats: InterfaceStats,
}

#[derive(Debug, Clone, Copy, serde::Deserialize)]
pub(crate) struct InterfaceStats {
    #[serde(rename = "tx")]
    pub(crate) sent: Counted,
}

#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
pub(crate) struct Counted {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// All interfaces in a namespace.
pub(crate) fn interfaces(namespace: &str) -> Result<Vec<Interface>> {
    let text = run(Command::new("ip").args(["-netns", namespace, "-s", "-j", "link", "show"]), "ip", "")?;
    serde_json::from_slice(&text)
        .map_err(|e| Error::Command { command: "ip -s -j link show".into(), stderr: e.to_string() })
}

/// Commands for the links and queues of one namespace (or, for [`Batch::initial`], of the caller's).
/// `ip`'s run before `tc`'s.
pub(crate) struct Batch<'a> {
    namespace: Option<&'a str>,
    ip: String,
    tc: String,
}

impl<'a> Batch<'a> {
    /// Commands that run in the caller's namespace: those that make namespaces and the pairs between them.
    pub(crate) fn initial() -> Self {
        Self { namespace: None, ip: String::new(), tc: String::new() }
    }

    pub(crate) fn in_namespace(namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ip: String::new(), tc: String::new() }
    }

    pub(crate) fn run(&self) -> Result<()> {
        batch("ip", self.namespace, &self.ip)?;
        batch("tc", self.namespace, &self.tc)
    }

    pub(crate) fn add_namespace(&mut self, namespace: &str) {
        self.ip(format!("netns add {namespace}"));
    }

    pub(crate) fn add_pair(&mut self, one: &Port, other: &Port, mtu_bytes: u32) {
        let end = |port: &Port| {
            let Port { name, index, namespace, .. } = port;
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

    pub(crate) fn set_mac(&mut self, port: &str, mac: &str) {
        self.ip(format!("link set dev {port} address {mac}"));
    }

    /// For good: nobody is asked for it, and it is not forgotten.
    pub(crate) fn add_neighbour(&mut self, port: &str, address: Ipv4Addr, mac: &str) {
        self.ip(format!("neighbour replace {address} lladdr {mac} nud permanent dev {port}"));
    }

    /// `to` is a network, or `default`.
    pub(crate) fn add_route(&mut self, to: &str, via: Ipv4Addr, port: &str) {
        self.ip(format!("route replace {to} via {via} dev {port}"));
    }

    /// Duplicate detection would keep the address from being used for a second.
    pub(crate) fn add_ipv6(&mut self, port: &str, address: Ipv6Addr) {
        self.ip(format!("address add {address}/64 dev {port} nodad"));
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

    /// What a TAP device is not made with. Its queue holds what its reader has not come to, which the rail has no say in.
    pub(crate) fn prepare_tap(&mut self, port: &str, mtu_bytes: u32) {
        self.ip(format!("link set dev {port} mtu {mtu_bytes} txqueuelen {TAP_QUEUE_PACKETS} group {PORT_GROUP}"));
    }

    /// Brings a port from one way of sending to another. HTB charges a GSO packet as one that has already left, and netem
    /// loses it whole, so TCP must not make any: one segment a packet.
    pub(crate) fn set_egress(&mut self, port: &str, before: Option<&Egress>, after: Option<&Egress>) {
        match (before, after) {
            (None, None) => {}
            (Some(_), None) => self.unshape(port),
            (None, Some(egress)) => {
                // What goes to others in the cluster stays whole; only the rest is cut.
                if !matches!(egress, Egress::Access(_)) {
                    self.ip(format!("link set dev {port} gso_max_segs 1"));
                }
                match egress {
                    Egress::Htb(shaping) => {
                        self.tc(format!("qdisc add dev {port} root handle 1: htb default 1"));
                        self.tc(format!("class add dev {port} {}", htb_class(shaping)));
                        self.tc(format!("qdisc add dev {port} parent 1:1 {}", fifo(shaping.queue)));
                    }
                    Egress::Tbf(shaping) => {
                        self.tc(format!("qdisc add dev {port} root {}", tbf(shaping)));
                        self.tc(format!("qdisc replace dev {port} parent 1:1 {}", fifo(shaping.queue)));
                    }
                    Egress::Access(access) => self.limit_access(port, access),
                    Egress::Netem(netem) => self.tc(format!("qdisc add dev {port} root {}", netem_line(netem))),
                }
            }
            (Some(_), Some(Egress::Htb(shaping))) => {
                self.tc(format!("class change dev {port} {}", htb_class(shaping)));
                self.tc(format!("qdisc replace dev {port} parent 1:1 {}", fifo(shaping.queue)));
            }
            (Some(_), Some(Egress::Tbf(shaping))) => {
                self.tc(format!("qdisc change dev {port} root {}", tbf(shaping)));
                self.tc(format!("qdisc replace dev {port} parent 1:1 {}", fifo(shaping.queue)));
            }
            (Some(_), Some(Egress::Access(access))) => {
                self.tc(format!("class change dev {port} {}", htb_class(&access.shaping)));
            }
            (Some(_), Some(Egress::Netem(netem))) => {
                self.tc(format!("qdisc change dev {port} root {}", netem_line(netem)));
            }
        }
    }

    /// What the filter does not say a class of, HTB passes at once.
    fn limit_access(&mut self, port: &str, access: &Access) {
        let shaping = &access.shaping;
        self.tc(format!("qdisc add dev {port} root handle 1: htb default 0"));
        self.tc(format!("class add dev {port} {}", htb_class(shaping)));
        self.tc(format!("qdisc add dev {port} parent 1:1 {}", cutter(shaping)));
        self.tc(format!("qdisc replace dev {port} parent 20:1 {}", fifo(shaping.queue)));
        let bytecode = is_outside(access);
        self.tc(format!("filter add dev {port} parent 1: pref 1 protocol ip bpf bytecode '{bytecode}' flowid 1:1"));
    }

    fn unshape(&mut self, port: &str) {
        self.ip(format!("link set dev {port} gso_max_segs {GSO_MAX_SEGS_DEFAULT}"));
        self.tc(format!("qdisc delete dev {port} root"));
    }

    /// Drops everything that arrives, so that the sender sees neither an error nor the loss of its carrier.
    ///
    /// A filter of one instruction (return TC_ACT_SHOT) needs only cls_bpf, while matchall and gact may be missing.
    /// It is the first on the ingress hook, and leaves the filters of others and the egress hook alone.
    pub(crate) fn cut(&mut self, port: &str) {
        self.tc(format!("qdisc replace dev {port} clsact"));
        self.drop_all(port, "ingress");
    }

    pub(crate) fn heal(&mut self, port: &str) {
        self.drop_none(port, "ingress");
    }

    /// Drops everything that arrives and everything that should leave.
    pub(crate) fn cut_both_ways(&mut self, port: &str) {
        self.cut(port);
        self.drop_all(port, "egress");
    }

    pub(crate) fn heal_both_ways(&mut self, port: &str) {
        self.heal(port);
        self.drop_none(port, "egress");
    }

    fn drop_all(&mut self, port: &str, hook: &str) {
        self.tc(format!("filter replace dev {port} {hook} {CUT_FILTER} direct-action bytecode '1,6 0 0 2'"));
    }

    fn drop_none(&mut self, port: &str, hook: &str) {
        self.tc(format!("filter delete dev {port} {hook} {CUT_FILTER}"));
    }

    fn ip(&mut self, line: String) {
        self.ip.push_str(&line);
        self.ip.push('\n');
    }

    fn tc(&mut self, line: String) {
        self.tc.push_str(&line);
        self.tc.push('\n');
    }
}

/// The quantum matters only between classes; given, the kernel does not warn of one that it derives.
fn htb_class(shaping: &Shaping) -> String {
    let Shaping { rate, burst_bytes, frame_bytes, .. } = shaping;
    let rate = format!("{}bit", rate.bit_s());
    format!(
        "parent 1: classid 1:1 htb rate {rate} ceil {rate} burst {burst_bytes} cburst {burst_bytes} \
         quantum {frame_bytes} mtu {frame_bytes}"
    )
}

/// A bucket for a packet, and for what HTB's holds.
fn tbf(shaping: &Shaping) -> String {
    let burst_bytes = shaping.frame_bytes + shaping.burst_bytes;
    format!("handle 1: tbf rate {}bit burst {burst_bytes} limit {}", shaping.rate.bit_s(), limit_bytes(shaping))
}

/// Only cuts GSO packets, which TBF does with those that do not fit into its bucket.
fn cutter(shaping: &Shaping) -> String {
    format!("handle 20: tbf rate 100gbit burst {} limit {}", shaping.frame_bytes, limit_bytes(shaping))
}

/// TBF must be told one, before it gets the queue that is meant.
fn limit_bytes(shaping: &Shaping) -> u64 {
    match shaping.queue {
        Queue::Bytes(bytes) => bytes,
        Queue::Packets(packets) => packets * shaping.frame_bytes,
    }
}

/// Classic BPF: is half of an IPv4 packet's source or destination address another than the network's?
fn is_outside(access: &Access) -> String {
    let at_byte = match access.side {
        Side::From => 26,
        Side::To => 30,
    };
    format!("4,40 0 0 {at_byte},21 1 0 {},6 0 0 4294967295,6 0 0 0", access.inside)
}

/// A handle for each kind: a queue cannot become one of the other kind.
fn fifo(queue: Queue) -> String {
    match queue {
        Queue::Bytes(bytes) => format!("handle 10: bfifo limit {bytes}"),
        Queue::Packets(packets) => format!("handle 11: pfifo limit {packets}"),
    }
}

/// All is said, also what is zero: what is left out of a change may stay.
fn netem_line(netem: &Netem) -> String {
    let Netem { rate, wan, limit_packets } = netem;
    let us = |delay: Option<Delay>| format!("{}us", delay.map_or(0, Delay::ns) as f64 / 1e3);
    let jitter = wan.jitter.map_or(String::new(), |jitter| format!(" {}", us(Some(jitter))));
    let loss = wan.loss.unwrap_or_default();
    let rate_bit_s = rate.map_or(0, |rate| rate.bit_s());
    format!("handle 1: netem limit {limit_packets} delay {}{jitter} loss {loss} rate {rate_bit_s}bit", us(wan.delay))
}

/// Whether the kernel has netem, and understands what is said to it here. Asked in a namespace that is soon gone.
pub(crate) fn try_netem_here() -> bool {
    let wan = Wan { delay: "10ms".parse().ok(), jitter: "1ms".parse().ok(), loss: "1%".parse().ok(), queue: None };
    let mut batch = Batch::initial();
    for (before, rate) in [(false, "100mbit".parse().ok()), (true, None)] {
        let egress = Egress::Netem(Netem::new(rate, &wan, 1500));
        batch.set_egress("lo", before.then_some(&egress), Some(&egress));
    }
    batch.run().is_ok()
}

fn batch(command: &'static str, namespace: Option<&str>, lines: &str) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut process = Command::new(command);
    if let Some(namespace) = namespace {
        process.args(["-netns", namespace]);
    }
    run(process.args(["-batch", "-"]), command, lines).map(|_| ())
}

/// What the command printed.
fn run(process: &mut Command, name: &'static str, stdin: &str) -> Result<Vec<u8>> {
    let args = process.get_args().map(|arg| arg.to_string_lossy().into_owned());
    let spelled = std::iter::once(name.to_owned()).chain(args).collect::<Vec<_>>().join(" ");
    let failed = |stderr: String| Error::Command { command: spelled.clone(), stderr };
    // A command that outlived us would go on making what the next `down` has just looked for.
    let die_with_us = || {
        // SAFETY: no memory is passed.
        Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        Ok(())
    };
    // SAFETY: between fork and exec only that system call is made.
    unsafe { process.pre_exec(die_with_us) };
    let mut child =
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| {
            if e.kind() == ErrorKind::NotFound { Error::CommandMissing(name) } else { failed(e.to_string()) }
        })?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that ended early says why on stderr; the broken pipe says nothing more.
        let _ = pipe.write_all(stdin.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(explain(&stderr, stdin)))
}

/// "Command failed -:3" names a line that only we know.
fn explain(stderr: &str, lines: &str) -> String {
    let failed_line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("Command failed -:"))
        .and_then(|number| lines.lines().nth(number.trim().parse::<usize>().ok()?.checked_sub(1)?));
    let words: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("Command failed")).collect();
    match failed_line {
        Some(line) => format!("{} (at `{line}`)", words.join("; ")),
        None => words.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_line_is_named() {
        let text = explain("Error: no such thing.\nCommand failed -:2\n", "first\nsecond\n");
        assert_eq!(text, "Error: no such thing. (at `second`)");
        assert_eq!(explain("Error: x\nCommand failed -:9\n", "first\n"), "Error: x");
    }

    #[test]
    fn a_rail_with_a_rate_and_a_queue_is_htb_with_that_queue() {
        let egress = |queue: &str| {
            let wan = Wan { queue: Queue::parse_optional(queue).unwrap(), ..Wan::default() };
            Egress::Htb(Shaping::new("100mbit".parse().unwrap(), &wan, 1500))
        };
        let mut batch = Batch::in_namespace("x");
        batch.set_egress("rail0", None, Some(&egress("100p")));
        assert!(batch.tc.contains("qdisc add dev rail0 parent 1:1 handle 11: pfifo limit 100\n"), "{}", batch.tc);
        let mut batch = Batch::in_namespace("x");
        batch.set_egress("rail0", Some(&egress("100p")), Some(&egress("64k")));
        assert!(
            batch.tc.contains("class change dev rail0 parent 1: classid 1:1 htb rate 100000000bit"),
            "{}",
            batch.tc
        );
        assert!(
            batch.tc.ends_with("qdisc replace dev rail0 parent 1:1 handle 10: bfifo limit 65536\n"),
            "{}",
            batch.tc
        );
    }

    #[test]
    fn netem_gets_all_it_needs() {
        let wan = Wan {
            delay: "10ms".parse().ok(),
            jitter: "1ms".parse().ok(),
            loss: "0.1%".parse().ok(),
            queue: "100p".parse().ok(),
        };
        let full = Egress::Netem(Netem::new("100mbit".parse().ok(), &wan, 1500));
        let bare = Egress::Netem(Netem::new(None, &Wan { delay: "250us".parse().ok(), ..Wan::default() }, 1500));
        let mut batch = Batch::in_namespace("x");
        batch.set_egress("rail0", None, Some(&full));
        batch.set_egress("rail0", Some(&full), Some(&bare));
        batch.set_egress("rail0", Some(&bare), None);
        let expected = "qdisc add dev rail0 root handle 1: netem limit 190 delay 10000us 1000us loss 0.1% rate 100000000bit\n\
                        qdisc change dev rail0 root handle 1: netem limit 206 delay 250us loss 0% rate 0bit\n\
                        qdisc delete dev rail0 root\n";
        assert_eq!(batch.tc, expected);
    }
}

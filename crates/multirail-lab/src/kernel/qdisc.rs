//! The queueing disciplines of ports in the notation of `tc`.

use crate::kernel::batch::Batch;
use crate::plan::shaping::{Access, AddressField, Egress, Netem, Shaping};
use crate::spec::wan::{Delay, Queue, Wan};

/// The kernel's default limit of segments in a GSO packet.
const GSO_MAX_SEGS_DEFAULT: u32 = 65_535;

impl Batch<'_> {
    /// Changes how the kernel shapes the packets that leave a port.
    ///
    /// HTB charges a GSO packet after it has left, and netem drops it as a whole. TCP on a shaped
    /// port must therefore send one segment per packet. A port with limited access is an exception:
    /// packets within the cluster stay whole, and only the others are segmented.
    pub(crate) fn set_egress(&mut self, port: &str, before: Option<&Egress>, after: Option<&Egress>) {
        match (before, after) {
            (None, None) => {}
            (Some(_), None) => {
                self.ip(format!("link set dev {port} gso_max_segs {GSO_MAX_SEGS_DEFAULT}"));
                self.tc(format!("qdisc delete dev {port} root"));
            }
            (None, Some(egress)) => {
                if !matches!(egress, Egress::Access(_)) {
                    self.ip(format!("link set dev {port} gso_max_segs 1"));
                }
                self.add_egress(port, egress);
            }
            (Some(_), Some(egress)) => self.change_egress(port, egress),
        }
    }

    fn add_egress(&mut self, port: &str, egress: &Egress) {
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
            Egress::Access(access) => self.add_access(port, access),
            Egress::Netem(netem) => self.tc(format!("qdisc add dev {port} root {}", netem_line(netem))),
        }
    }

    fn change_egress(&mut self, port: &str, egress: &Egress) {
        match egress {
            Egress::Htb(shaping) => {
                self.tc(format!("class change dev {port} {}", htb_class(shaping)));
                self.tc(format!("qdisc replace dev {port} parent 1:1 {}", fifo(shaping.queue)));
            }
            Egress::Tbf(shaping) => {
                self.tc(format!("qdisc change dev {port} root {}", tbf(shaping)));
                self.tc(format!("qdisc replace dev {port} parent 1:1 {}", fifo(shaping.queue)));
            }
            Egress::Access(access) => self.tc(format!("class change dev {port} {}", htb_class(&access.shaping))),
            Egress::Netem(netem) => self.tc(format!("qdisc change dev {port} root {}", netem_line(netem))),
        }
    }

    /// Shapes the packets that a filter assigns to the class. HTB passes all others at once.
    fn add_access(&mut self, port: &str, access: &Access) {
        let shaping = &access.shaping;
        self.tc(format!("qdisc add dev {port} root handle 1: htb default 0"));
        self.tc(format!("class add dev {port} {}", htb_class(shaping)));
        self.tc(format!("qdisc add dev {port} parent 1:1 {}", segmenter(shaping)));
        self.tc(format!("qdisc replace dev {port} parent 20:1 {}", fifo(shaping.queue)));
        let bytecode = is_outside(access);
        self.tc(format!("filter add dev {port} parent 1: pref 1 protocol ip bpf bytecode '{bytecode}' flowid 1:1"));
    }
}

/// The HTB class of a port. The quantum matters only between classes, but without it the kernel
/// warns about the one that it derives.
fn htb_class(shaping: &Shaping) -> String {
    let Shaping { rate, burst_bytes, frame_bytes, .. } = shaping;
    let rate = format!("{}bit", rate.bit_s());
    format!(
        "parent 1: classid 1:1 htb rate {rate} ceil {rate} burst {burst_bytes} cburst {burst_bytes} \
         quantum {frame_bytes} mtu {frame_bytes}"
    )
}

/// The TBF of a router's port. Its bucket holds a packet more than that of HTB, which lets one
/// packet pass with an empty bucket.
fn tbf(shaping: &Shaping) -> String {
    let burst_bytes = shaping.frame_bytes + shaping.burst_bytes;
    format!("handle 1: tbf rate {}bit burst {burst_bytes} limit {}", shaping.rate.bit_s(), limit_bytes(shaping))
}

/// A TBF without an effective rate. It segments GSO packets, as TBF does with packets that do not
/// fit into its bucket.
fn segmenter(shaping: &Shaping) -> String {
    format!("handle 20: tbf rate 100gbit burst {} limit {}", shaping.frame_bytes, limit_bytes(shaping))
}

/// The limit that TBF requires, although its child queue replaces it at once.
fn limit_bytes(shaping: &Shaping) -> u64 {
    match shaping.queue {
        Queue::Bytes(bytes) => bytes,
        Queue::Packets(packets) => packets * shaping.frame_bytes,
    }
}

/// Classic BPF that compares the first half of an IPv4 packet's source or destination address with
/// the network. It returns nonzero if they differ.
fn is_outside(access: &Access) -> String {
    let at_byte = match access.field {
        AddressField::Source => 26,
        AddressField::Destination => 30,
    };
    format!("4,40 0 0 {at_byte},21 1 0 {},6 0 0 4294967295,6 0 0 0", access.inside)
}

/// A bounded queue. Each kind has a handle of its own, because a queue cannot change its kind.
fn fifo(queue: Queue) -> String {
    match queue {
        Queue::Bytes(bytes) => format!("handle 10: bfifo limit {bytes}"),
        Queue::Packets(packets) => format!("handle 11: pfifo limit {packets}"),
    }
}

/// A netem queue with all its parameters. A parameter that a change omits may keep its value.
fn netem_line(netem: &Netem) -> String {
    let Netem { rate, wan, limit_packets } = netem;
    let us = |delay: Option<Delay>| format!("{}us", delay.map_or(0, Delay::ns) as f64 / 1e3);
    let jitter = wan.jitter.map_or(String::new(), |jitter| format!(" {}", us(Some(jitter))));
    let loss = wan.loss.unwrap_or_default();
    let rate_bit_s = rate.map_or(0, |rate| rate.bit_s());
    format!("handle 1: netem limit {limit_packets} delay {}{jitter} loss {loss} rate {rate_bit_s}bit", us(wan.delay))
}

/// Whether the kernel has netem and accepts our parameters. Tried at the loopback of the calling
/// thread's namespace, which should be a temporary one.
pub(crate) fn try_netem_here() -> bool {
    let wan = Wan { delay: "10ms".parse().ok(), jitter: "1ms".parse().ok(), loss: "1%".parse().ok(), queue: None };
    let mut batch = Batch::initial();
    for (before, rate) in [(false, "100mbit".parse().ok()), (true, None)] {
        let egress = Egress::Netem(Netem::new(rate, &wan, 1500));
        batch.set_egress("lo", before.then_some(&egress), Some(&egress));
    }
    batch.run().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_with_a_rate_and_a_queue_is_htb_with_that_queue() {
        let egress = |queue: &str| {
            let wan = Wan { queue: Queue::parse_optional(queue).unwrap(), ..Wan::default() };
            Egress::Htb(Shaping::new("100mbit".parse().unwrap(), &wan, 1500))
        };
        let mut batch = Batch::in_namespace("x");
        batch.set_egress("rail0", None, Some(&egress("100p")));
        assert!(
            batch.tc_lines().contains("qdisc add dev rail0 parent 1:1 handle 11: pfifo limit 100\n"),
            "{}",
            batch.tc_lines()
        );
        let mut batch = Batch::in_namespace("x");
        batch.set_egress("rail0", Some(&egress("100p")), Some(&egress("64k")));
        assert!(
            batch.tc_lines().contains("class change dev rail0 parent 1: classid 1:1 htb rate 100000000bit"),
            "{}",
            batch.tc_lines()
        );
        assert!(
            batch.tc_lines().ends_with("qdisc replace dev rail0 parent 1:1 handle 10: bfifo limit 65536\n"),
            "{}",
            batch.tc_lines()
        );
    }

    #[test]
    fn netem_gets_all_its_parameters() {
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
        assert_eq!(batch.tc_lines(), expected);
    }
}

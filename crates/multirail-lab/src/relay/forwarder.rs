//! The loop of the relay. It reads packets from the TAP devices of the senders, and writes them to
//! those of the receivers when they are due.
//!
//! One thread serves all rails of a lab. While it runs, it makes system calls and does not
//! allocate.

use crate::plan::lab_plan::LabPlan;
use crate::relay::direction::DirectionQueue;
use crate::relay::segment::PACKET_MAX_BYTES;
use crate::relay::shared::{RelayMemory, count};
use crate::relay::switch::RelaySwitch;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

/// Packets that are due within this time leave now. A sleep takes about as long, and a wake-up
/// costs more than their delay.
const EARLY_NS: u64 = 20_000;
/// The least time between two wake-ups in a lab with clusters, so that one wake-up carries several
/// packets. It halves the relay's CPU time on a mesh of four clusters, where 64 hosts need the rest
/// of the machine (`cargo run --release -p multirail-lab --example clusters`).
const CLUSTERS_PAUSE_NS: u64 = 200_000;
/// The most packets that are read from one port before the next port has its turn.
const READS_MAX: usize = 64;
/// The seed of losses and jitter, which thus repeat from lab to lab.
const SEED: u64 = 0x6d75_6c74_6972_6169;

/// The relay, with all the memory and files that it needs, before it becomes a process of its own.
pub(crate) struct Relay {
    ports: Vec<RelayPort>,
    /// The directions from switches to hosts.
    downlinks: Vec<DirectionQueue>,
    switches: Vec<RelaySwitch>,
    shared: RelayMemory,
    /// The least time between two wake-ups.
    pause_ns: u64,
    /// Readable after the process that created the lab has ended.
    owner: OwnedFd,
    polls: Vec<libc::pollfd>,
}

/// A host's port on a relayed rail.
struct RelayPort {
    tap: OwnedFd,
    uplink: DirectionQueue,
    next_hop: NextHop,
}

/// Where an uplink leads.
#[derive(Clone, Copy)]
enum NextHop {
    /// To the port with this index.
    Port(usize),
    /// To a switch.
    Switch {
        /// The index of the switch.
        switch: usize,
        /// The index of the switch's member that the uplink comes from.
        member: usize,
    },
}

impl Relay {
    /// Creates a relay. `taps` are the ports of all relayed rails, in the order of
    /// [`LabPlan::directions`].
    pub(crate) fn new(plan: &LabPlan<'_>, taps: Vec<OwnedFd>, shared: RelayMemory, owner: OwnedFd) -> io::Result<Self> {
        let directions = plan.directions();
        let mut ports: Vec<RelayPort> = Vec::new();
        let mut downlinks = Vec::new();
        let mut switches: Vec<RelaySwitch> = Vec::new();
        let mut rail_before = None;
        let mut taps = taps.into_iter();
        for (index, direction) in directions.iter().enumerate() {
            let queue = DirectionQueue::new(index, SEED ^ (index as u64) << 32)?;
            if direction.to_host {
                // A downlink follows the uplink of its port in the plan.
                let port = ports.len() - 1;
                if rail_before != Some(direction.rail) {
                    rail_before = Some(direction.rail);
                    switches.push(RelaySwitch::new());
                }
                let switch = switches.len() - 1;
                let member = switches[switch].members.len();
                switches[switch].members.push((port, downlinks.len()));
                downlinks.push(queue);
                ports[port].next_hop = NextHop::Switch { switch, member };
            } else {
                let tap = taps.next().ok_or(io::ErrorKind::InvalidInput)?;
                // The other port of a rail of two hosts. A switch replaces it, see above.
                let uplinks = directions.iter().filter(|d| !d.to_host && d.rail == direction.rail);
                let is_first = uplinks.map(|d| d.host).min() == Some(direction.host);
                let other = if is_first { ports.len() + 1 } else { ports.len().saturating_sub(1) };
                ports.push(RelayPort { tap, uplink: queue, next_hop: NextHop::Port(other) });
            }
        }
        let poll = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let polls = std::iter::once(&owner).chain(ports.iter().map(|port| &port.tap)).map(poll).collect();
        let pause_ns = if plan.topology.clusters.is_empty() { 0 } else { CLUSTERS_PAUSE_NS };
        Ok(Self { ports, downlinks, switches, shared, pause_ns, owner, polls })
    }

    /// The descriptors that must stay open in the new process.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        std::iter::once(&self.owner).chain(self.ports.iter().map(|port| &port.tap)).map(AsRawFd::as_raw_fd).collect()
    }

    /// Carries packets until the lab is removed.
    pub(crate) fn run(&mut self) {
        let mut woke_ns = 0;
        loop {
            sleep_until(woke_ns + self.pause_ns);
            let deadline_ns = self.deadline_ns();
            if !self.wait(deadline_ns) {
                return;
            }
            woke_ns = now_ns();
            for port in 0..self.ports.len() {
                if self.polls[port + 1].revents & libc::POLLIN != 0 {
                    self.read(port);
                }
            }
            self.send_due(now_ns() + EARLY_NS);
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        let queues = self.ports.iter().map(|port| &port.uplink).chain(&self.downlinks);
        queues.filter_map(|queue| queue.ring.departs_ns()).min()
    }

    /// Waits until a port is readable or a packet is due. Returns false if the lab is removed.
    fn wait(&mut self, deadline_ns: Option<u64>) -> bool {
        let left_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now_ns() + EARLY_NS));
        let timeout = left_ns.map(|left_ns| libc::timespec {
            tv_sec: (left_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as _,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array has this length, and it and the timeout outlive the call. A null signal
        // mask is valid.
        let ready = unsafe {
            libc::ppoll(self.polls.as_mut_ptr(), self.polls.len() as libc::nfds_t, timeout, std::ptr::null())
        };
        if ready < 0 {
            // After a signal, no port is known to be ready. The relay cannot handle other errors.
            self.polls.iter_mut().for_each(|poll| poll.revents = 0);
            return io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        }
        if self.polls[0].revents != 0 {
            if self.shared.header().is_kept.load(Relaxed) == 0 {
                return false;
            }
            self.polls[0].fd = -1;
        }
        // A deleted TAP device reports an error. ppoll ignores negative descriptors.
        let gone = |poll: &libc::pollfd| poll.revents & (libc::POLLERR | libc::POLLNVAL) != 0;
        for poll in self.polls[1..].iter_mut().filter(|poll| gone(poll)) {
            poll.fd = -1;
            poll.revents = 0;
        }
        self.polls[1..].iter().any(|poll| poll.fd >= 0)
    }

    fn read(&mut self, port: usize) {
        let Self { ports, shared, .. } = self;
        let RelayPort { tap, uplink, .. } = &mut ports[port];
        let direction = &shared.directions()[uplink.direction];
        for _ in 0..READS_MAX {
            let Some(room) = uplink.ring.room(PACKET_MAX_BYTES) else {
                // The ring is full. Reading one byte discards the packet, which counts as one,
                // however many segments it has.
                if read(tap.as_raw_fd(), &mut [0; 1]).is_none() {
                    return;
                }
                count(&direction.arrived_packets, 1);
                count(&direction.dropped_packets, 1);
                continue;
            };
            let Some(bytes) = read(tap.as_raw_fd(), room) else { return };
            uplink.handle_packet(bytes, now_ns(), direction);
        }
    }

    fn send_due(&mut self, now_ns: u64) {
        let Self { ports, downlinks, switches, shared, .. } = self;
        let directions = shared.directions();
        for port in 0..ports.len() {
            match ports[port].next_hop {
                NextHop::Port(other) => {
                    let tap = ports[other].tap.as_raw_fd();
                    ports[port].uplink.send_due(now_ns, directions, |parts, _| write(tap, parts));
                }
                NextHop::Switch { switch, member } => {
                    let switch = &mut switches[switch];
                    ports[port].uplink.send_due(now_ns, directions, |parts, departs_ns| {
                        switch.forward(member, parts, |downlink: usize| {
                            let queue = &mut downlinks[downlink];
                            queue.handle_copy(parts, departs_ns, &directions[queue.direction]);
                        });
                    });
                }
            }
        }
        for switch in switches {
            for &(port, downlink) in &switch.members {
                let tap = ports[port].tap.as_raw_fd();
                downlinks[downlink].send_due(now_ns, directions, |parts, _| write(tap, parts));
            }
        }
    }
}

/// Reads a packet. Returns `None` if there is none.
fn read(tap: RawFd, into: &mut [u8]) -> Option<usize> {
    // SAFETY: the kernel writes at most the length of the slice.
    let bytes = unsafe { libc::read(tap, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

/// Writes a packet. A port that is down refuses it, and the packet is lost as intended.
fn write(tap: RawFd, parts: &[&[u8]; 2]) {
    let part = |part: &[u8]| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    let parts = [part(parts[0]), part(parts[1])];
    // SAFETY: writev only reads the two parts, which outlive the call.
    unsafe { libc::writev(tap, parts.as_ptr(), 2) };
}

/// Sleeps until a time. Does not sleep for times so short that a wake-up costs more.
fn sleep_until(end_ns: u64) {
    let left_ns = end_ns.saturating_sub(now_ns());
    if left_ns > EARLY_NS {
        let left = libc::timespec { tv_sec: 0, tv_nsec: left_ns as _ };
        // SAFETY: the time outlives the call. The remaining time after a signal is not needed.
        unsafe { libc::nanosleep(&raw const left, std::ptr::null_mut()) };
    }
}

/// The time of the monotonic clock.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to the struct, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

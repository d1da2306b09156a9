//! What carries the packets of WANs: reads them from the ports that send, and writes them to those that receive, when
//! their time has come. One thread for all rails of a lab. While it runs it makes system calls and does not allocate.

use crate::link::{Link, Segments};
use crate::plan::Plan;
use crate::segment::{HEADERS_MAX_BYTES, Layout, PACKET_MAX_BYTES, VNET_BYTES};
use crate::shared::{Direction, Shared, count};
use crate::store::{Store, Stored};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

/// Packets due so soon leave now: a sleep takes about as long, and a wake-up costs more than they do.
const EARLY_NS: u64 = 20_000;
/// Between clusters, packets wait for others so long, to be carried by one wake-up: half of the relay's time on a mesh of
/// four (`cargo run --release -p multirail-lab --example clusters`), where 64 hosts need the rest of the machine.
const CLUSTERS_REST_NS: u64 = 200_000;
/// What is read from one port before others have their turn.
const READS_MAX: usize = 64;
/// A switch knows so many addresses; more than there are hosts on a rail, which may have bridges of their own.
const ADDRESSES_MAX: usize = 4096;
/// Any number; with it, losses and jitter repeat from lab to lab.
const SEED: u64 = 0x6d75_6c74_6972_6169;

/// All that a relay needs, made before it is a process of its own.
pub(crate) struct Relay {
    ports: Vec<Port>,
    /// From switches to hosts.
    downlinks: Vec<Way>,
    switches: Vec<Switch>,
    shared: Shared,
    /// The least time from one wake-up to the next.
    rest_ns: u64,
    /// Readable once the process that made the lab has ended.
    owner: OwnedFd,
    polls: Vec<libc::pollfd>,
}

struct Port {
    tap: OwnedFd,
    uplink: Way,
    to: To,
}

/// Where an uplink leads.
#[derive(Clone, Copy)]
enum To {
    Port(usize),
    /// From this port of it.
    Switch(usize, usize),
}

/// A direction with what is on its way.
struct Way {
    /// In what is shared.
    direction: usize,
    link: Link,
    store: Store,
}

struct Switch {
    /// Ports and their downlinks.
    members: Vec<(usize, usize)>,
    /// Which of the members an address was seen at.
    addresses: Vec<([u8; 6], usize)>,
}

impl Relay {
    /// `taps` are the ports of all relayed rails, in the order of [`Plan::directions`].
    pub(crate) fn new(plan: &Plan<'_>, taps: Vec<OwnedFd>, shared: Shared, owner: OwnedFd) -> io::Result<Self> {
        let directions = plan.directions();
        let mut ports = Vec::new();
        let mut downlinks = Vec::new();
        let mut switches: Vec<Switch> = Vec::new();
        let mut rail_before = None;
        let mut taps = taps.into_iter();
        for (index, direction) in directions.iter().enumerate() {
            let way = Way { direction: index, link: Link::new(SEED ^ (index as u64) << 32), store: Store::new()? };
            if direction.to_host {
                // Follows the uplink of its port.
                let port = ports.len() - 1;
                if rail_before != Some(direction.rail) {
                    rail_before = Some(direction.rail);
                    let addresses = Vec::with_capacity(ADDRESSES_MAX);
                    switches.push(Switch { members: Vec::new(), addresses });
                }
                let switch = switches.len() - 1;
                let member = switches[switch].members.len();
                switches[switch].members.push((port, downlinks.len()));
                downlinks.push(way);
                let at: &mut Port = &mut ports[port];
                at.to = To::Switch(switch, member);
            } else {
                let tap = taps.next().ok_or(io::ErrorKind::InvalidInput)?;
                // The other of two; of a switch's, set above.
                let mates = directions.iter().filter(|d| !d.to_host && d.rail == direction.rail);
                let is_first = mates.map(|d| d.host).min() == Some(direction.host);
                let to = To::Port(if is_first { ports.len() + 1 } else { ports.len().saturating_sub(1) });
                ports.push(Port { tap, uplink: way, to });
            }
        }
        let poll = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let polls = std::iter::once(&owner).chain(ports.iter().map(|port| &port.tap)).map(poll).collect();
        let rest_ns = if plan.topology.clusters.is_empty() { 0 } else { CLUSTERS_REST_NS };
        Ok(Self { ports, downlinks, switches, shared, rest_ns, owner, polls })
    }

    /// What must stay open.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        std::iter::once(&self.owner).chain(self.ports.iter().map(|port| &port.tap)).map(AsRawFd::as_raw_fd).collect()
    }

    /// Carries packets until the lab has gone.
    pub(crate) fn run(&mut self) {
        let mut woke_ns = 0;
        loop {
            rest_until(woke_ns + self.rest_ns);
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
        let ways = self.ports.iter().map(|port| &port.uplink).chain(&self.downlinks);
        ways.filter_map(|way| way.store.departs_ns()).min()
    }

    /// Until there is something to do. False: there never will be.
    fn wait(&mut self, deadline_ns: Option<u64>) -> bool {
        let left_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now_ns() + EARLY_NS));
        let timeout = left_ns.map(|left_ns| libc::timespec {
            tv_sec: (left_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as _,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array and the timeout outlive the call.
        let ready = unsafe {
            libc::ppoll(self.polls.as_mut_ptr(), self.polls.len() as libc::nfds_t, timeout, std::ptr::null())
        };
        if ready < 0 {
            // Interrupted: nothing is known to be ready. Anything else cannot be helped.
            self.polls.iter_mut().for_each(|poll| poll.revents = 0);
            return io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        }
        if self.polls[0].revents != 0 {
            if self.shared.head().is_kept.load(Relaxed) == 0 {
                return false;
            }
            self.polls[0].fd = -1;
        }
        // Deleted by somebody.
        let gone = |poll: &libc::pollfd| poll.revents & (libc::POLLERR | libc::POLLNVAL) != 0;
        for poll in self.polls[1..].iter_mut().filter(|poll| gone(poll)) {
            poll.fd = -1;
            poll.revents = 0;
        }
        self.polls[1..].iter().any(|poll| poll.fd >= 0)
    }

    fn read(&mut self, port: usize) {
        let Self { ports, shared, .. } = self;
        let Port { tap, uplink, .. } = &mut ports[port];
        let direction = &shared.directions()[uplink.direction];
        for _ in 0..READS_MAX {
            let Some(room) = uplink.store.room(PACKET_MAX_BYTES) else {
                // The memory is full: it is lost, and counted as if it were one.
                if read(tap.as_raw_fd(), &mut [0; 1]).is_none() {
                    return;
                }
                count(&direction.arrived_packets, 1);
                count(&direction.dropped_packets, 1);
                continue;
            };
            let Some(bytes) = read(tap.as_raw_fd(), room) else { return };
            uplink.take(bytes, now_ns(), direction);
        }
    }

    fn send_due(&mut self, now_ns: u64) {
        let Self { ports, downlinks, switches, shared, .. } = self;
        for port in 0..ports.len() {
            let to = ports[port].to;
            match to {
                To::Port(other) => {
                    let tap = ports[other].tap.as_raw_fd();
                    ports[port].uplink.send_due(now_ns, shared.directions(), |parts, _| write(tap, parts));
                }
                To::Switch(switch, from) => {
                    let switch = &mut switches[switch];
                    ports[port].uplink.send_due(now_ns, shared.directions(), |parts, departs_ns| {
                        switch.forward(from, parts, |downlink: usize| {
                            let way = &mut downlinks[downlink];
                            way.copy(parts, departs_ns, &shared.directions()[way.direction]);
                        });
                    });
                }
            }
        }
        for switch in switches {
            for &(port, downlink) in &switch.members {
                let tap = ports[port].tap.as_raw_fd();
                downlinks[downlink].send_due(now_ns, shared.directions(), |parts, _| write(tap, parts));
            }
        }
    }
}

impl Way {
    /// A packet has been written to the store's room.
    fn take(&mut self, bytes: usize, now_ns: u64, direction: &Direction) {
        let Self { link, store, .. } = self;
        let at = store.keep(bytes);
        let segments = segments(store.kept(at, bytes));
        let mut kept = false;
        let mut full = 0;
        let gone = link.offer(now_ns, &direction.params(), segments, |piece| {
            let stored = Stored {
                departs_ns: piece.departs_ns,
                at,
                bytes: bytes as u32,
                first: piece.first,
                count: piece.count,
                is_whole: piece.count == segments.count,
            };
            if store.push(stored) {
                kept = true;
            } else {
                full += piece.count;
            }
        });
        if !kept {
            store.forget(at);
        }
        count(&direction.arrived_packets, segments.count.into());
        count(&direction.arrived_bytes, segments.bytes(0, segments.count));
        count(&direction.dropped_packets, (gone.dropped + full).into());
        count(&direction.lost_packets, gone.lost.into());
        if link.queued_packets() > direction.queue_peak_packets.load(Relaxed) {
            direction.queue_peak_packets.store(link.queued_packets(), Relaxed);
        }
    }

    /// A packet comes from a switch.
    fn copy(&mut self, parts: &[&[u8]; 2], now_ns: u64, direction: &Direction) {
        let bytes = parts[0].len() + parts[1].len();
        let Some(room) = self.store.room(bytes) else {
            count(&direction.arrived_packets, 1);
            count(&direction.dropped_packets, 1);
            return;
        };
        let (first, second) = room.split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
        self.take(bytes, now_ns, direction);
    }

    /// `send` gets a packet in two parts, and when it departs.
    fn send_due(&mut self, now_ns: u64, directions: &[Direction], mut send: impl FnMut(&[&[u8]; 2], u64)) {
        let direction = &directions[self.direction];
        while let Some((piece, packet)) = self.store.due(now_ns) {
            let mut headers = [0; HEADERS_MAX_BYTES];
            let layout = if piece.is_whole { None } else { Layout::of(packet) };
            if let Some(layout) = layout {
                let (header_bytes, payload) = layout.part(packet, piece.first, piece.count, &mut headers);
                send(&[&headers[..header_bytes], &packet[payload]], piece.departs_ns);
            } else {
                send(&[packet, &[]], piece.departs_ns);
            }
            let segments = segments(packet);
            count(&direction.carried_packets, piece.count.into());
            count(&direction.carried_bytes, segments.bytes(piece.first, piece.first + piece.count));
            self.store.pop();
        }
    }
}

impl Switch {
    /// Learns where the packet came from, and calls `to` with each downlink that it goes to.
    fn forward(&mut self, from: usize, parts: &[&[u8]; 2], mut to: impl FnMut(usize)) {
        let Some(ethernet) = parts[0].get(VNET_BYTES..VNET_BYTES + 12) else { return };
        let (target, source) = ethernet.split_at(6);
        if let Some((_, member)) = self.addresses.iter_mut().find(|(address, _)| address == source) {
            *member = from;
        } else if self.addresses.len() < ADDRESSES_MAX {
            let mut address = [0; 6];
            address.copy_from_slice(source);
            self.addresses.push((address, from));
        }
        let is_group = target[0] & 1 != 0;
        let known = self.addresses.iter().find(|(address, _)| !is_group && address == target);
        match known {
            Some(&(_, member)) if member == from => {}
            Some(&(_, member)) => to(self.members[member].1),
            None => {
                for (member, &(_, downlink)) in self.members.iter().enumerate() {
                    if member != from {
                        to(downlink);
                    }
                }
            }
        }
    }
}

fn segments(packet: &[u8]) -> Segments {
    match Layout::of(packet) {
        Some(layout) => layout.segments(),
        None => Segments::one(packet.len().saturating_sub(VNET_BYTES) as u32),
    }
}

/// None: there is nothing to read.
fn read(tap: RawFd, into: &mut [u8]) -> Option<usize> {
    // SAFETY: it may be written to for its length.
    let bytes = unsafe { libc::read(tap, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

/// A port that is down takes nothing, as it should.
fn write(tap: RawFd, parts: &[&[u8]; 2]) {
    let part = |part: &[u8]| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    let parts = [part(parts[0]), part(parts[1])];
    // SAFETY: the parts outlive the call, which only reads them.
    unsafe { libc::writev(tap, parts.as_ptr(), 2) };
}

/// No sleep where a wake-up would cost as much.
fn rest_until(end_ns: u64) {
    let rest_ns = end_ns.saturating_sub(now_ns());
    if rest_ns > EARLY_NS {
        let rest = libc::timespec { tv_sec: 0, tv_nsec: rest_ns as _ };
        // SAFETY: the time outlives the call. Where a signal ends it, the rest is shorter.
        unsafe { libc::nanosleep(&raw const rest, std::ptr::null_mut()) };
    }
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it may be written to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

//! A host's ports: which there are, how fast each is, and what waits there.

use super::{FRAME_BYTES, MAX_PORTS, MS};

/// A measurement takes at least this,
const SAMPLE_NS: u64 = 2 * MS;
/// and so much that passed, unless that takes very long.
const SAMPLE_FRAMES: u64 = 32;
/// The fastest of so many counts.
const SAMPLES: u32 = 8;
/// No port is taken to be slower than nominal by more than this.
const SLOWEST: u64 = 1024;

/// A set of ports: bit *i* stands for port *i*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(pub u32);

impl Mask {
    /// Ports 0 to `ports` - 1.
    #[must_use]
    pub fn first(ports: usize) -> Self {
        Mask((1 << ports.min(MAX_PORTS)) - 1)
    }

    /// What is in both.
    #[must_use]
    pub fn and(self, other: Mask) -> Self {
        Mask(self.0 & other.0)
    }

    /// Whether it has this port.
    #[must_use]
    pub fn has(self, port: u32) -> bool {
        port < 32 && self.0 >> port & 1 == 1
    }

    /// How many it has.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The members, in order.
    pub fn ports(self) -> impl Iterator<Item = u32> {
        (0..MAX_PORTS as u32).filter(move |port| self.has(*port))
    }

    /// The `n`-th member, counted round and round; 0 where there is none.
    pub(super) fn nth(self, n: u32) -> u32 {
        self.ports().nth((n % self.count().max(1)) as usize).unwrap_or(0)
    }
}

/// What is queued at the ports of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// `None`: the port's queue does not tell.
    pub queued_bytes: [Option<u32>; MAX_PORTS],
}

/// A port of this host.
#[derive(Clone, Debug)]
pub struct Port {
    nominal_ns_per_kib: u64,
    bytes: u64,
    ns_per_kib: u64,
    free_ns: u64,
    sampled_ns: u64,
    sampled_bytes: u64,
    sampled_queued: u64,
    fastest_ns_per_kib: u64,
    samples: u32,
    was_idle: bool,
}

impl Port {
    pub(super) fn new(nominal_ns_per_kib: u64) -> Self {
        Port {
            nominal_ns_per_kib,
            bytes: 0,
            ns_per_kib: 0,
            free_ns: 0,
            sampled_ns: 0,
            sampled_bytes: 0,
            sampled_queued: 0,
            fastest_ns_per_kib: 0,
            samples: 0,
            was_idle: false,
        }
    }

    /// What it needs for a KiB: as nominal, unless it is clearly slower.
    #[must_use]
    pub fn ns_per_kib(&self) -> u64 {
        let nominal = self.nominal_ns_per_kib;
        if self.ns_per_kib > nominal + nominal / 2 { self.ns_per_kib } else { nominal }
    }

    /// When what was given to it will have left.
    pub(super) fn free_ns(&self, now_ns: u64) -> u64 {
        self.free_ns.max(now_ns)
    }

    pub(super) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(super) fn add_work(&mut self, now_ns: u64, takes_ns: u64) {
        self.free_ns = self.free_ns(now_ns) + takes_ns;
    }

    /// Takes notice of what is queued. `before`: the ports with lower numbers.
    pub(super) fn look(&mut self, before: &[Port], now_ns: u64, queued: Option<u32>) {
        self.ns_per_kib = self.ns_per_kib.max(self.nominal_ns_per_kib);
        let Some(queued) = queued.map(u64::from) else { return };
        self.measure(now_ns, queued);
        // Ports that are nearly alike are alike, for else noise would make them work unevenly.
        let is_alike = |other: &&Port| other.ns_per_kib.abs_diff(self.ns_per_kib) < self.ns_per_kib / 4;
        if let Some(other) = before.iter().find(is_alike) {
            self.ns_per_kib = other.ns_per_kib;
        }
        self.free_ns = now_ns + queued * self.ns_per_kib() / 1024;
    }

    /// What has drained while there was always something queued shows the port's rate: the fastest of some measurements, for a host that is
    /// busy slows all of them now and then. If it was idle in between, it is at least as fast as that.
    fn measure(&mut self, now_ns: u64, queued: u64) {
        let carried =
            self.bytes.wrapping_sub(self.sampled_bytes).wrapping_add(self.sampled_queued).wrapping_sub(queued);
        let (passed, nominal) = (now_ns.wrapping_sub(self.sampled_ns), self.nominal_ns_per_kib);
        self.was_idle |= queued == 0;
        if passed < SAMPLE_NS || (carried < SAMPLE_FRAMES * FRAME_BYTES && passed < 256 * SAMPLE_NS) {
            return;
        }
        let sample = passed
            .wrapping_mul(1024)
            .checked_div(carried.wrapping_add(1))
            .unwrap_or(0)
            .clamp(nominal, SLOWEST * nominal);
        if !self.was_idle {
            self.fastest_ns_per_kib = if self.samples == 0 { sample } else { sample.min(self.fastest_ns_per_kib) };
            self.samples += 1;
            if self.samples >= SAMPLES {
                self.ns_per_kib = self.fastest_ns_per_kib;
                self.samples = 0;
            }
        } else if sample < self.ns_per_kib - self.ns_per_kib / 4 {
            self.ns_per_kib = sample;
        }
        self.was_idle = queued == 0;
        self.sampled_ns = now_ns;
        self.sampled_bytes = self.bytes;
        self.sampled_queued = queued;
    }
}

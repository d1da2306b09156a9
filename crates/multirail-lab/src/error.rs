//! What can go wrong, who caused it, and what to do about it.

use std::path::PathBuf;

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a lab could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller may not make network namespaces.
    #[error("making network namespaces needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)\nhint: run this with sudo")]
    NotRoot,
    /// `ip` or `tc` is not installed.
    #[error("the command `{0}` was not found\nhint: it is in the package iproute2 (`apt install iproute2`)")]
    CommandMissing(&'static str),
    /// The kernel refused what `ip` or `tc` asked for.
    #[error("`{command}` failed: {stderr}")]
    Command {
        /// The command and, where it ran, the namespace.
        command: String,
        /// What it said, and the line of its input that it said it of.
        stderr: String,
    },
    /// A rate that cannot be read.
    #[error("bad rate {input:?}: {reason}\nhint: write 100mbit, 2.5gbit, 500kbit, or `-` for a rail without a rate")]
    BadRate {
        /// What was given.
        input: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A delay, a loss or a queue that cannot be read.
    #[error("bad {what} {input:?}: {reason}\nhint: write {examples}, or `-` for none")]
    BadWan {
        /// `delay`, `loss` or `queue`.
        what: &'static str,
        /// What was given.
        input: String,
        /// What is wrong with it.
        reason: &'static str,
        /// What could be meant.
        examples: &'static str,
    },
    /// What is said of a link between clusters cannot be read, or there is no such link.
    #[error(
        "bad link {input:?}: {reason}\nhint: write a-b=80mbit (both ways), a>b=8mbit (one way), a-b=80mbit,delay=10ms"
    )]
    BadLink {
        /// What was given.
        input: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The rail was made without delay, jitter and loss.
    #[error(
        "rail {rail} of lab {lab:?} was made without a delay, so it cannot get one now\nhint: make it with `--delay 0ms`"
    )]
    NotWan {
        /// The lab.
        lab: String,
        /// The rail.
        rail: usize,
    },
    /// The process that carries the packets of the lab's WANs could not be made, or is not there.
    #[error("the relay of lab {lab:?}: {doing}: {reason}{hint}")]
    Relay {
        /// The lab.
        lab: String,
        /// What was tried.
        doing: &'static str,
        /// The kernel's answer.
        reason: std::io::Error,
        /// What to do, on a line of its own, where known.
        hint: &'static str,
    },
    /// A host or lab name that cannot be part of a namespace's name.
    #[error("bad {what} name {name:?}: {reason}")]
    BadName {
        /// `host` or `lab`.
        what: &'static str,
        /// What was given.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A topology that makes no network.
    #[error("bad topology: {0}")]
    BadTopology(String),
    /// A topology file that is not the TOML it should be.
    #[error("cannot read the topology {path}: {reason}")]
    TopologyFile {
        /// The file, or `<text>`.
        path: String,
        /// The parser's words.
        reason: String,
    },
    /// A lab of this name is there already.
    #[error("lab {0:?} is up already\nhint: `multirail lab down --name {0}` takes it down, also when it is half-made")]
    AlreadyUp(String),
    /// There is no lab of this name.
    #[error("lab {0:?} is not up\nhint: `multirail lab list` shows what is")]
    NotUp(String),
    /// The lab has no such host.
    #[error("lab {lab:?} has no host {host:?}, only {}", known.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// What was asked for.
        host: String,
        /// The hosts that there are.
        known: Vec<String>,
    },
    /// The lab has no such rail.
    #[error("lab {lab:?} has no rail {rail}, only 0 to {}", rails.saturating_sub(1))]
    NoRail {
        /// The lab.
        lab: String,
        /// What was asked for.
        rail: usize,
        /// How many rails there are.
        rails: usize,
    },
    /// The host is in no cluster.
    #[error("host {host:?} of lab {lab:?} is in no cluster")]
    NotInCluster {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
    },
    /// The hosts of the lab have rails, of which all ports change together.
    #[error("the hosts of lab {lab:?} were made without ports\nhint: make it with `--ports`, or change a whole rail")]
    NoPorts {
        /// The lab.
        lab: String,
    },
    /// The hosts have no such port.
    #[error("hosts of lab {lab:?} have no port {port:?}, only {}", known.join(", "))]
    NoPort {
        /// The lab.
        lab: String,
        /// What was asked for.
        port: String,
        /// The ports that there are.
        known: Vec<String>,
    },
    /// Only the first port has an address.
    #[error("port {port} of host {host:?} of lab {lab:?} has no address\nhint: make it with `--subnets`")]
    NoAddress {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
        /// The port's number.
        port: usize,
    },
    /// The rail does not reach that host.
    #[error("rail {rail} of lab {lab:?} does not reach host {host:?}")]
    NotOnRail {
        /// The lab.
        lab: String,
        /// The rail.
        rail: usize,
        /// The host.
        host: String,
    },
    /// The kernel refused the value of a sysctl, or has no such sysctl.
    #[error("host {host:?}: cannot set {key} to {value:?}: {reason}{hint}")]
    Sysctl {
        /// The host.
        host: String,
        /// The sysctl, with dots.
        key: String,
        /// The value.
        value: String,
        /// The kernel's answer.
        reason: std::io::Error,
        /// What to do, on a line of its own, where known.
        hint: &'static str,
    },
    /// A namespace could not be entered, or a port's offloads not be set.
    #[error("namespace {namespace}: {doing}: {reason}")]
    Namespace {
        /// The namespace.
        namespace: String,
        /// What was tried.
        doing: &'static str,
        /// The kernel's answer.
        reason: std::io::Error,
    },
    /// The file in which a lab's state is kept could not be read or written.
    #[error("lab state {}: {reason}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The kernel's answer, or the parser's.
        reason: std::io::Error,
    },
}

//! The errors of this crate.

use std::path::PathBuf;

/// The result of every fallible operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a lab failed.
///
/// The text names what failed and where. Where there is a cause, [`std::error::Error::source`]
/// returns it, and the text does not repeat it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller may not create network namespaces.
    #[error("creating network namespaces needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    NotRoot,
    /// `ip` or `tc` is not installed.
    #[error("the command `{0}` was not found; install the package iproute2")]
    CommandMissing(&'static str),
    /// `ip` or `tc` could not be started.
    #[error("cannot run `{command}`")]
    CommandStart {
        /// The command with its arguments.
        command: String,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// The kernel refused a request of `ip` or `tc`.
    #[error("`{command}` failed: {stderr}")]
    Command {
        /// The command with its arguments, which name the namespace.
        command: String,
        /// The output of the command, and the line of its input that failed.
        stderr: String,
    },
    /// The output of `ip` or `tc` is not the expected JSON.
    #[error("cannot parse the output of `{command}`")]
    CommandOutput {
        /// The command.
        command: &'static str,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// A rate is not valid.
    #[error("bad rate {input:?}: {reason}; write 100mbit, 2.5gbit or 500kbit, or `-` for no limit")]
    BadRate {
        /// The text that was given.
        input: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A delay, a loss or a queue is not valid.
    #[error("bad {what} {input:?}: {reason}; write {examples}, or `-` for none")]
    BadWan {
        /// `delay`, `loss` or `queue`.
        what: &'static str,
        /// The text that was given.
        input: String,
        /// The rule that it breaks.
        reason: &'static str,
        /// Valid values.
        examples: &'static str,
    },
    /// The setting of a link between clusters is not valid, or the link does not exist.
    #[error(
        "bad link {input:?}: {reason}; write a-b=80mbit (both directions), a>b=8mbit (one direction) \
         or a-b=80mbit,delay=10ms"
    )]
    BadLink {
        /// The text that was given.
        input: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// A direction of a link between clusters has neither a rate of its own nor a default.
    #[error("the link {from}>{to} has no rate")]
    LinkWithoutRate {
        /// The cluster that sends.
        from: String,
        /// The cluster that receives.
        to: String,
    },
    /// The rail was created without delay, jitter and loss, and cannot get them later.
    #[error("rail {rail} of lab {lab:?} was created without a delay and cannot get one later")]
    NotWan {
        /// The lab.
        lab: String,
        /// The index of the rail.
        rail: usize,
    },
    /// The relay process of the lab could not be started.
    #[error("the relay of lab {lab:?}: {doing}")]
    Relay {
        /// The lab.
        lab: String,
        /// The step that failed.
        doing: &'static str,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// A host or lab name cannot be part of the name of a namespace.
    #[error("bad {what} name {name:?}: {reason}")]
    BadName {
        /// `host` or `lab`.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// The rule for such names.
        reason: &'static str,
    },
    /// The topology describes no valid network.
    #[error("bad topology: {0}")]
    BadTopology(String),
    /// A topology file cannot be read, or is not valid TOML for a topology.
    #[error("cannot read the topology {path}")]
    TopologyFile {
        /// The file, or `<text>`.
        path: String,
        /// The error of the kernel or of the parser.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A lab of this name exists.
    #[error("lab {0:?} is up already")]
    AlreadyUp(String),
    /// No lab of this name exists.
    #[error("lab {0:?} is not up")]
    NotUp(String),
    /// The lab has no such host.
    #[error("lab {lab:?} has no host {host:?}, only {}", known.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// The name that was given.
        host: String,
        /// The hosts of the lab.
        known: Vec<String>,
    },
    /// The lab has no such rail.
    #[error("lab {lab:?} has no rail {rail}, only 0 to {}", rails.saturating_sub(1))]
    NoRail {
        /// The lab.
        lab: String,
        /// The index that was given.
        rail: usize,
        /// The number of rails of the lab.
        rails: usize,
    },
    /// The host belongs to no cluster.
    #[error("host {host:?} of lab {lab:?} is in no cluster")]
    NotInCluster {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
    },
    /// The hosts of the lab have rails instead of ports. All ends of a rail change together.
    #[error("the hosts of lab {lab:?} were created without ports")]
    NoPorts {
        /// The lab.
        lab: String,
    },
    /// The hosts have no such port.
    #[error("hosts of lab {lab:?} have no port {port:?}, only {}", known.join(", "))]
    NoPort {
        /// The lab.
        lab: String,
        /// The name that was given.
        port: String,
        /// The ports of each host.
        known: Vec<String>,
    },
    /// The port has no address: only the first port of a host has one.
    #[error("port {port} of host {host:?} of lab {lab:?} has no address")]
    NoAddress {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
        /// The number of the port.
        port: usize,
    },
    /// The rail does not join that host.
    #[error("rail {rail} of lab {lab:?} does not reach host {host:?}")]
    NotOnRail {
        /// The lab.
        lab: String,
        /// The index of the rail.
        rail: usize,
        /// The host.
        host: String,
    },
    /// The kernel refused the value of a sysctl, or has no such sysctl.
    #[error("host {host:?}: cannot set {key} to {value:?}")]
    Sysctl {
        /// The host.
        host: String,
        /// The sysctl, with dots.
        key: String,
        /// The value.
        value: String,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// An operation inside a namespace failed.
    #[error("namespace {namespace}: {doing}")]
    Namespace {
        /// The namespace.
        namespace: String,
        /// The step that failed.
        doing: &'static str,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// The state file of a lab could not be read or written.
    #[error("lab state {}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The error of the kernel or of the parser.
        source: std::io::Error,
    },
}

#[cfg(test)]
pub(crate) mod tests {
    use std::error::Error;

    /// The text of an error and of all its causes, as a command prints it.
    pub(crate) fn chain(error: &dyn Error) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        text
    }
}

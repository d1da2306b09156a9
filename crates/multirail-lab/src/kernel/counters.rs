//! Reads the interfaces of a namespace and the counters of interfaces and queues.

use crate::error::{Error, Result};
use crate::kernel::command::run;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The counters of a shaped port.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct QdiscCounters {
    #[serde(rename = "dev")]
    pub(crate) port: String,
    root: Option<bool>,
    /// Bytes of frames that left.
    pub(crate) bytes: u64,
    /// Packets that left.
    pub(crate) packets: u64,
    /// Packets that found the queue full.
    pub(crate) drops: u64,
}

/// An interface and its counters.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Interface {
    #[serde(rename = "ifname")]
    pub(crate) name: String,
    #[serde(rename = "address")]
    pub(crate) mac: String,
    #[serde(rename = "stats64")]
    stats: InterfaceStats,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct InterfaceStats {
    #[serde(rename = "tx")]
    sent: SentCounters,
}

/// What an interface has sent.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct SentCounters {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

impl Interface {
    pub(crate) fn sent(&self) -> SentCounters {
        self.stats.sent
    }
}

/// The counters of all shaped ports in a namespace.
pub(crate) fn qdisc_counters(namespace: &str) -> Result<Vec<QdiscCounters>> {
    let output = run("tc", &["-netns", namespace, "-s", "-j", "qdisc", "show"])?;
    let mut counters: Vec<QdiscCounters> = parse("tc -s -j qdisc show", &output)?;
    counters.retain(|counters| counters.root == Some(true));
    Ok(counters)
}

/// All interfaces in a namespace.
pub(crate) fn interfaces(namespace: &str) -> Result<Vec<Interface>> {
    let output = run("ip", &["-netns", namespace, "-s", "-j", "link", "show"])?;
    parse("ip -s -j link show", &output)
}

fn parse<T: DeserializeOwned>(command: &'static str, output: &[u8]) -> Result<T> {
    serde_json::from_slice(output).map_err(|source| Error::CommandOutput { command, source })
}

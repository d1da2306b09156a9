//! `multirail lab list`, and the rows that `lab up` and `lab set` print: hosts, ports, rails and
//! links.

use crate::printer::Printer;
use anyhow::Context;
use clap::Args;
use multirail_lab::{
    Delay, Lab, LabHost, LabRail, LabSummary, LinkDirection, LinkState, Loss, PortStatus, Queue, Rate, Topology,
    TrafficCounters, WanCounters,
};
use serde::Serialize;

/// List labs, their hosts, rails and addresses
#[derive(Args)]
#[command(after_help = "Example:\n  multirail lab list --json")]
pub struct ListArgs {}

pub fn run(printer: &Printer) -> anyhow::Result<()> {
    let labs = Lab::list()?;
    if labs.is_empty() {
        printer.note("no lab is up");
    }
    labs.iter().try_for_each(|lab| print(lab, printer))
}

/// A host and its addresses, in the order of the rails.
#[derive(Serialize)]
struct HostRow<'a> {
    kind: &'static str,
    lab: &'a str,
    host: &'a str,
    namespace: String,
    /// The cluster of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    /// The address of the host in its cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    ports: Vec<PortRow>,
}

#[derive(Serialize)]
struct PortRow {
    rail: usize,
    port: String,
    ipv4: Option<String>,
    ipv6: Option<String>,
}

#[derive(Serialize)]
struct RailRow<'a> {
    kind: &'static str,
    lab: &'a str,
    rail: usize,
    hosts: Vec<&'a str>,
    rate_mbit_s: Option<f64>,
    /// The rates of hosts that have their own.
    rates_mbit_s: std::collections::BTreeMap<&'a str, f64>,
    delay_ms: Option<f64>,
    jitter_ms: Option<f64>,
    loss_percent: Option<f64>,
    queue: Option<Queue>,
    mtu_bytes: u32,
    link: LinkState,
    /// The counters of each direction of a WAN, unless the kernel emulates it.
    counters: Vec<&'a WanCounters>,
}

pub fn print(summary: &LabSummary, printer: &Printer) -> anyhow::Result<()> {
    let Some(topology) = &summary.topology else {
        #[derive(Serialize)]
        struct LeftoverRow<'a> {
            kind: &'static str,
            lab: &'a str,
        }
        printer.row(&LeftoverRow { kind: "leftover", lab: &summary.name }, |row| {
            format!("lab {0}: incomplete; `multirail lab down --name {0}` removes it", row.lab)
        });
        return Ok(());
    };
    printer.text(format!("lab {}", summary.name));
    let lab = Lab::open(&summary.name)?;
    for host in topology.hosts.iter().filter(|host| lab.hosts().any(|name| name == host.name)) {
        printer.row(&host_row(&lab, summary, topology, host)?, host_text);
    }
    if topology.ports.is_some() {
        return print_ports(&lab, printer, |_| true);
    }
    let counters = lab.wan_counters()?;
    let links = lab.link_directions()?;
    for rail in (0..topology.rails.len()).filter(|rail| links.iter().all(|link| link.rail != *rail)) {
        printer.row(&rail_row(summary, topology, rail, &counters), rail_text);
    }
    print_links(&lab, printer, |_, _| true)
}

/// A port of a host with its counters.
#[derive(Serialize)]
struct PortStatusRow<'a> {
    kind: &'static str,
    lab: &'a str,
    #[serde(flatten)]
    status: &'a PortStatus,
}

/// Prints the ports that the predicate selects.
pub fn print_ports(lab: &Lab, printer: &Printer, wanted: impl Fn(&PortStatus) -> bool) -> anyhow::Result<()> {
    for status in lab.ports()?.iter().filter(|status| wanted(status)) {
        printer.row(&PortStatusRow { kind: "port", lab: lab.name(), status }, |row| port_text(row.status));
    }
    Ok(())
}

fn port_text(status: &PortStatus) -> String {
    let PortStatus { host, port, mac, rate_mbit_s, link, sent, received, .. } = status;
    let rate = rate_mbit_s.map_or("unshaped".to_owned(), |rate| format!("{rate} Mbit/s"));
    let carried = |TrafficCounters { bytes, packets, drops, .. }: &TrafficCounters| {
        format!("{bytes} bytes in {packets} packets, {drops} lost")
    };
    let (state, sent, received) = (state_text(*link), carried(sent), carried(received));
    format!("  {host}:{port}  {mac}, {rate}{state}\n    sent {sent}\n    received {received}")
}

/// Prints a rail, a link, or the ports of all hosts to one switch.
pub fn print_rail(
    lab: &Lab,
    summary: &LabSummary,
    topology: &Topology,
    rail: usize,
    printer: &Printer,
) -> anyhow::Result<()> {
    if topology.ports.is_some() {
        return print_ports(lab, printer, |status| status.number == rail);
    }
    if lab.link_directions()?.iter().any(|direction| direction.rail == rail) {
        let of_rail = |rail_of: &LinkDirection| rail_of.rail == rail;
        return print_some_links(lab, printer, of_rail);
    }
    printer.row(&rail_row(summary, topology, rail, &lab.wan_counters()?), rail_text);
    Ok(())
}

/// Prints the links between clusters that the predicate selects.
pub fn print_links(lab: &Lab, printer: &Printer, wanted: impl Fn(&str, &str) -> bool) -> anyhow::Result<()> {
    print_some_links(lab, printer, |direction| wanted(&direction.from, &direction.to))
}

fn print_some_links(lab: &Lab, printer: &Printer, wanted: impl Fn(&LinkDirection) -> bool) -> anyhow::Result<()> {
    let summary = lab.summary()?;
    let topology = summary.topology.as_ref().context("the lab has been taken down")?;
    // The two directions of a link are adjacent.
    for directions in lab.link_directions()?.chunk_by(|one, other| one.rail == other.rail) {
        if let [there, ..] = directions
            && directions.iter().any(&wanted)
        {
            let rail = &topology.rails[there.rail];
            let row = LinkRow {
                kind: "link",
                lab: lab.name(),
                link: format!("{}-{}", there.from, there.to),
                rail: there.rail,
                delay_ms: rail.delay.map(Delay::ms),
                jitter_ms: rail.jitter.map(Delay::ms),
                loss_percent: rail.loss.map(Loss::percent),
                queue: rail.queue,
                state: summary.links[there.rail],
                directions,
            };
            printer.row(&row, link_text);
        }
    }
    Ok(())
}

/// A link between two clusters.
#[derive(Serialize)]
struct LinkRow<'a> {
    kind: &'static str,
    lab: &'a str,
    link: String,
    rail: usize,
    delay_ms: Option<f64>,
    jitter_ms: Option<f64>,
    loss_percent: Option<f64>,
    queue: Option<Queue>,
    state: LinkState,
    directions: &'a [LinkDirection],
}

fn link_text(row: &LinkRow<'_>) -> String {
    let direction = |d: &LinkDirection| {
        let LinkDirection { from, to, rate_mbit_s, bytes, packets, drops, .. } = d;
        format!("\n    {from}>{to}  {rate_mbit_s} Mbit/s, {bytes} bytes in {packets} packets left, {drops} lost")
    };
    let wan = wan_text(row.delay_ms, row.jitter_ms, row.loss_percent, row.queue);
    let directions: String = row.directions.iter().map(direction).collect();
    format!("  link {} (rail {}{wan}{}){directions}", row.link, row.rail, state_text(row.state))
}

fn host_row<'a>(
    lab: &'a Lab,
    summary: &'a LabSummary,
    topology: &'a Topology,
    host: &'a LabHost,
) -> anyhow::Result<HostRow<'a>> {
    let mut ports = Vec::new();
    for (rail, wanted) in topology.rails.iter().enumerate() {
        if joins(wanted, host) {
            let ipv4 = match lab.address(&host.name, rail) {
                Err(multirail_lab::Error::NoAddress { .. }) => None,
                address => Some(address?.to_string()),
            };
            let ipv6 = lab.address_v6(&host.name, rail)?.map(|address| address.to_string());
            ports.push(PortRow { rail, port: lab.port(rail)?, ipv4, ipv6 });
        }
    }
    let namespace = lab.namespace(&host.name)?;
    let cluster = lab.cluster(&host.name);
    let address = cluster.map(|_| lab.cluster_address(&host.name)).transpose()?.map(|address| address.to_string());
    Ok(HostRow { kind: "host", lab: &summary.name, host: &host.name, namespace, cluster, address, ports })
}

fn host_text(row: &HostRow<'_>) -> String {
    let port = |port: &PortRow| {
        let addresses: Vec<&str> = [&port.ipv4, &port.ipv6].into_iter().flatten().map(String::as_str).collect();
        format!("\n    {}  {}", port.port, addresses.join(" ")).trim_end().to_owned()
    };
    let cluster = match (row.cluster, &row.address) {
        (Some(cluster), Some(address)) => format!("  {address}, cluster {cluster}"),
        _ => String::new(),
    };
    format!("  host {} ({}){cluster}{}", row.host, row.namespace, row.ports.iter().map(port).collect::<String>())
}

fn rail_row<'a>(
    summary: &'a LabSummary,
    topology: &'a Topology,
    rail: usize,
    counters: &'a [WanCounters],
) -> RailRow<'a> {
    let wanted = &topology.rails[rail];
    RailRow {
        kind: "rail",
        lab: &summary.name,
        rail,
        hosts: topology.hosts.iter().filter(|host| joins(wanted, host)).map(|host| host.name.as_str()).collect(),
        rate_mbit_s: wanted.rate.map(Rate::mbit_s),
        rates_mbit_s: wanted.rates.iter().map(|(host, rate)| (host.as_str(), rate.mbit_s())).collect(),
        delay_ms: wanted.delay.map(Delay::ms),
        jitter_ms: wanted.jitter.map(Delay::ms),
        loss_percent: wanted.loss.map(Loss::percent),
        queue: wanted.queue,
        mtu_bytes: wanted.mtu,
        link: summary.links[rail],
        counters: counters.iter().filter(|counters| counters.rail == rail).collect(),
    }
}

fn rail_text(row: &RailRow<'_>) -> String {
    let rate = row.rate_mbit_s.map_or("unshaped".to_owned(), |rate| format!("{rate} Mbit/s"));
    let own = |(host, rate): (&&str, &f64)| format!(", {host} {rate} Mbit/s");
    let own: String = row.rates_mbit_s.iter().map(own).collect();
    let wan = wan_text(row.delay_ms, row.jitter_ms, row.loss_percent, row.queue);
    let link = state_text(row.link);
    format!("  rail {}: {}, {rate}{own}{wan}, mtu {}{link}", row.rail, row.hosts.join(" - "), row.mtu_bytes)
}

fn wan_text(delay_ms: Option<f64>, jitter_ms: Option<f64>, loss_percent: Option<f64>, queue: Option<Queue>) -> String {
    let parts = [
        delay_ms.map(|delay| format!(", delay {delay} ms")),
        jitter_ms.map(|jitter| format!(", jitter {jitter} ms")),
        loss_percent.map(|loss| format!(", loss {loss} %")),
        queue.map(|queue| format!(", queue {queue}")),
    ];
    parts.into_iter().flatten().collect()
}

fn state_text(state: LinkState) -> &'static str {
    match state {
        LinkState::Up => "",
        LinkState::Down => ", down",
        LinkState::Cut => ", cut",
    }
}

fn joins(rail: &LabRail, host: &LabHost) -> bool {
    rail.hosts.is_empty() || rail.hosts.contains(&host.name)
}

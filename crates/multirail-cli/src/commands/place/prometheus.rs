//! The status in Prometheus' text format.

use multirail::placement::Status;
use std::fmt::Write;

pub fn text(status: &Status) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &mut dyn Iterator<Item = (String, f64)>| {
        let _ = writeln!(text, "# HELP multirail_place_{name} {help}\n# TYPE multirail_place_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "multirail_place_{name}{{{labels}}} {value}");
        }
    };
    let port_labels =
        |port: &multirail::placement::PortStatus| format!("port=\"{}\",number=\"{}\"", escape(&port.port), port.number);
    let ports = || status.ports.iter();
    family("info", "gauge", "The policy.", &mut [(format!("policy=\"{}\"", status.policy), 1.0)].into_iter());
    family(
        "port_bytes_total",
        "counter",
        "Bytes given to a port.",
        &mut ports().map(|p| (port_labels(p), p.bytes as f64)),
    );
    family(
        "port_packets_total",
        "counter",
        "Packets given to a port.",
        &mut ports().map(|p| (port_labels(p), p.packets as f64)),
    );
    family(
        "port_queue_bytes",
        "gauge",
        "Bytes in a port's queue.",
        &mut ports().map(|p| (port_labels(p), p.queue_bytes as f64)),
    );
    family(
        "port_usable",
        "gauge",
        "1 if packets may leave by the port.",
        &mut ports().map(|p| (port_labels(p), f64::from(u8::from(p.usable)))),
    );
    family(
        "peer_usable_ports",
        "gauge",
        "Number of ports that lead to another host, which is named by the address of its first port.",
        &mut status
            .peers
            .iter()
            .filter_map(|peer| Some((format!("host=\"{}\"", peer.macs.first()?), peer.usable_ports.len() as f64))),
    );
    if let Some(counts) = &status.exchange {
        let (hellos, refused) = (&counts.hellos, &counts.refused);
        let counts = [
            ("accepted", hellos.accepted),
            ("replayed", hellos.replayed),
            ("other_port", hellos.other_port),
            ("contradictory", hellos.contradictory),
            ("too_many", hellos.too_many),
            ("forged", refused.forged),
            ("malformed", refused.malformed),
        ];
        let mut samples = counts.iter().map(|(what, count)| (format!("outcome=\"{what}\""), *count as f64));
        family("hellos_total", "counter", "Hellos of other hosts, by outcome.", &mut samples);
    }
    text.trim_end().to_owned()
}

/// Escapes a label's value. The name of a port may have any byte but a slash.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

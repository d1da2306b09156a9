//! Status as Prometheus reads it.

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
        "port_backlog_bytes",
        "gauge",
        "Bytes that wait in a port's queue.",
        &mut ports().map(|p| (port_labels(p), p.backlog_bytes as f64)),
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
        "Ports that lead to another host, named by its first port's address.",
        &mut status
            .peers
            .iter()
            .filter_map(|peer| Some((format!("host=\"{}\"", peer.macs.first()?), peer.usable_ports.len() as f64))),
    );
    if let Some(counts) = &status.exchange {
        let (hellos, refused) = (&counts.hellos, &counts.refused);
        let counts = [
            ("taken", hellos.taken),
            ("replayed", hellos.replayed),
            ("other_port", hellos.other_port),
            ("contradictory", hellos.contradictory),
            ("too_many", hellos.too_many),
            ("forged", refused.forged),
            ("malformed", refused.malformed),
        ];
        let mut samples = counts.iter().map(|(what, count)| (format!("outcome=\"{what}\""), *count as f64));
        family("hellos_total", "counter", "Hellos of other hosts, by what became of them.", &mut samples);
    }
    text.trim_end().to_owned()
}

/// A port's name may have any byte but a slash.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

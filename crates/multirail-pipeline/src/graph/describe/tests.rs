use super::*;
use crate::{Filters, StreamOptions};
use multirail_net::Config;
use multirail_proto::pipeline::Schedule;
use multirail_proto::pipeline::chunk::Guarantee;
use serde_json::json;

const GOOD: &str = r#"
[[filter]]
name = "source"
use = "generate"
bytes = "1m"

[[filter]]
name = "work"
program = ["sed", "s/a/b/"]
silence_s = 5
copies = 3
hosts = ["a", "local"]
stateless = true

[[filter]]
name = "sink"
use = "write"
file = "out"

[[stream]]
from = "source"
to = "work"
schedule = "round-robin"
window = 2
transport = "tcp"

[[stream]]
from = "work"
to = "sink"

[hosts]
a = "10.0.0.1:7717"

[run]
chunk = "8k"
limit = 1000000
units = 3
query = "all"

[guarantee]
latency_us = 500
update_bytes = "1m"
compute_ns_per_byte = 18
"#;

fn failure(text: &str) -> String {
    text.parse::<Description>().and_then(|d| d.graph()).unwrap_err().to_string()
}

/// The error for GOOD with one replacement.
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    failure(&GOOD.replacen(from, to, 1))
}

#[test]
fn everything_in_the_file_is_read() {
    let good: Description = GOOD.parse().unwrap();
    assert_eq!(
        (good.chunk_bytes, good.limit_bytes, good.units, good.query.as_str()),
        (Some(8192), 1_000_000, 3, "all")
    );
    assert_eq!(good.kinds(), ["generate", "program", "write"]);
    assert_eq!(good.filters[0].parameters, json!({"bytes": "1m"}));
    assert_eq!(good.filters[1].parameters, json!({"program": ["sed", "s/a/b/"], "silence_s": 5}));
    let (graph, hosts) = good.graph().unwrap();
    assert_eq!(hosts, ["local", "a"]);
    assert_eq!(graph.filters()[1].hosts, [1, 0, 1]);
    assert_eq!(graph.streams()[0].schedule, Schedule::RoundRobin);
    assert_eq!((graph.streams()[0].window, graph.streams()[1].window), (2, StreamOptions::default().window));
    let shape = good.shape(2).unwrap();
    assert_eq!((shape.hops, shape.copies, shape.update_bytes, shape.compute_ns_per_byte), (2, 1, 1 << 20, 18.0));
    assert_eq!(good.guarantee.unwrap().guarantee, Guarantee::LatencyUs(500.0));
    let known = Filters::built_in(std::path::Path::new("/"));
    let told = good.group(Config::default(), &known).unwrap_err().to_string();
    assert!(told.contains("line 7: filter \"work\" uses the kind \"program\", which is unknown"), "{told}");
    good.group(Config::default(), &known.with_programs(std::path::Path::new("/"))).unwrap();
}

#[test]
fn errors_name_the_line() {
    for (told, parts) in [
        (with("[[stream]]", "[[streem]]"), ["line 20: ", "streem"]),
        (with("copies = 3", "copies = 0"), ["line 7: ", "filter \"work\" has 0 copies"]),
        (with("copies = 3", "copies = -1"), ["line 11: ", "`copies` is wrong"]),
        (with("copies = 3", "copies = \"many\""), ["line 11: ", "`copies` is wrong"]),
        (with("name = \"sink\"", "nam = \"sink\""), ["line 15: ", "has no name"]),
        (with("name = \"sink\"", "name = \"work\""), ["", "no [[filter]] has the name \"sink\""]),
        (with("use = \"write\"", ""), ["line 15: ", "neither `use"]),
        (with("use = \"write\"", "use = \"write\"\nprogram = [\"x\"]"), ["line 18: ", "both `use` and `program`"]),
        (with("file = \"out\"", "file = 2026-01-01"), ["line 18: ", "`file` is no text"]),
        (with("to = \"work\"", "to = \"walk\""), ["line 22: ", "no [[filter]] has the name \"walk\""]),
        (with("window = 2", "window = 0"), ["line 20: ", "window of the stream source -> work is 0"]),
        (with("window = 2", "windows = 2"), ["line 24: ", "windows"]),
        (with("\"round-robin\"", "\"random\""), ["line 23: ", "random"]),
        (with("\"tcp\"", "\"carrier-pigeon\""), ["line 25: ", "carrier-pigeon"]),
        (with("hosts = [\"a\"", "hosts = [\"b\""), ["line 7: ", "host \"b\", which is not in [hosts]"]),
        (with("to = \"sink\"", "to = \"source\""), ["the streams form a cycle", "work -> source"]),
        (with("chunk = \"8k\"", "chunk = 0"), ["line 35: ", "chunk must be at least 1"]),
        (with("chunk = \"8k\"", "chunk = \"big\""), ["line 35: ", "size"]),
        (with("units = 3", "units = 0"), ["line 37: ", "units must be 1 to"]),
        (with("latency_us = 500", ""), ["line 40: ", "needs one of `updates_per_s`"]),
        (with("latency_us = 500", "latency_us = 500\nperfect_pipeline = true"), ["line 40: ", "needs one of"]),
        (with("update_bytes = \"1m\"", "update_bytes = 0"), ["line 40: ", "at least 1"]),
        (with("[hosts]", "[hosts"), ["line 31: ", ""]),
        (failure(""), ["there is no filter", ""]),
    ] {
        assert!(parts.iter().all(|part| told.contains(part)), "{parts:?} in {told}");
    }
}

//! The options of `multirail bench`.

use super::super::SessionArgs;
use clap::builder::ArgPredicate;
use multirail::Strategy;
use multirail::bench::{MAX_MESSAGE_BYTES, MAX_STREAM};
use multirail::pipeline::edge::Transport;
use multirail_proto::units::{format_size, parse_rate_mbit_s, parse_size};

/// Measure strategies with `multirail serve` on another host
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  multirail bench node2 --sizes 8k,64k,4m --strategies tcp,two-ended,adaptive --repeat 5\n\n\
    `tcp` is one plain TCP connection on the best rail, with blocking calls and without a protocol of multirail. `oracle` is \
    a fixed split by --oracle-rates, with one plain connection per rail. Values are medians over the repeats. Within one \
    repeat, all lines run one after the other, and ratio_to_tcp compares lines of the same repeat.\n\n\
    The values of a stream are those of the receiving application, with a new session for each repeat:\n  \
    multirail bench node2 --pattern stream --sizes 64k --strategies adaptive --seconds 10\n\n\
    Transports of pipeline edges, one way, and plain TCP:\n  \
    multirail bench localhost --transports tcp,shm"
)]
pub struct BenchArgs {
    /// The host, which runs `multirail serve`
    #[arg(value_name = "HOST[:PORT]")]
    pub(super) host: String,
    /// Message sizes
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1k,8k,64k,512k,4m",
        default_value_if("transports", ArgPredicate::IsPresent, "1,8,64,512,4k,16k,64k,256k,1m,4m,16m"),
        value_parser = size
    )]
    pub(super) sizes: Vec<u64>,
    /// `ping-pong` sends each message there and back; `stream` sends messages one way without a
    /// pause
    #[arg(long, value_enum, default_value_t = Pattern::PingPong)]
    pub(super) pattern: Pattern,
    /// The duration of each stream in seconds
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=MAX_STREAM.as_secs() as i64))]
    pub(super) seconds: u32,
    /// What to measure: tcp, oracle, or a strategy
    #[arg(long, value_delimiter = ',', default_value = "tcp,single,equal-partition,shared-counter,two-ended,adaptive")]
    pub(super) strategies: Vec<Line>,
    /// Measure these transports beside plain TCP, instead of strategies: tcp, shm, striped, ucx
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["strategies", "pattern", "oracle_rates"], value_parser = transport)]
    pub(super) transports: Vec<Transport>,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: u32,
    /// The rails' rates in Mbit/s, in the order of `multirail rails`, for `oracle` and for choosing
    /// tcp's rail
    #[arg(long, value_delimiter = ',', value_parser = rate)]
    pub(super) oracle_rates: Vec<f64>,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
pub(super) enum Pattern {
    PingPong,
    Stream,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Line {
    Tcp,
    Oracle,
    Strategy(Strategy),
}

impl std::str::FromStr for Line {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Line::Tcp),
            "oracle" => Ok(Line::Oracle),
            other => other.parse().map(Line::Strategy).map_err(|e| format!("{e}, and tcp and oracle to compare with")),
        }
    }
}

impl Line {
    pub(super) fn name(self) -> &'static str {
        match self {
            Line::Tcp => "tcp",
            Line::Oracle => "oracle",
            Line::Strategy(strategy) => strategy.name(),
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    if (1..=MAX_MESSAGE_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("a size is at least 1 byte and at most {}", format_size(MAX_MESSAGE_BYTES)))
    }
}

fn transport(text: &str) -> Result<Transport, String> {
    match text.parse::<Transport>().map_err(|e| e.to_string())? {
        Transport::Memory => Err("memory works only within one process".to_owned()),
        between => Ok(between),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    parse_rate_mbit_s(text).map_err(|e| e.to_string())
}

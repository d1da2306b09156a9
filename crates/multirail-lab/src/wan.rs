//! What makes a rail a WAN, as people write it: delay, jitter, loss, and the queue before the rail.

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Above this nothing on earth is meant, and TCP gives up before it has an answer.
const DELAY_MAX_NS: u64 = 10_000_000_000;
/// More than any rail's memory holds.
const QUEUE_MAX: u64 = 1 << 30;
const WHOLE_PPM: u32 = 1_000_000;

/// What a rail does to packets beside its rate. With a delay, a jitter or a loss, also of zero, it is a WAN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wan {
    /// How long a packet travels, one way. The round trip takes twice as long.
    pub delay: Option<Delay>,
    /// How far the delay of a packet is off, at most: more or less, all values alike. Packets keep their order.
    pub jitter: Option<Delay>,
    /// How many of the packets are lost, each for itself.
    pub loss: Option<Loss>,
    /// What waits for its turn on a rail with a rate. What comes to a full queue is dropped.
    pub queue: Option<Queue>,
}

impl Wan {
    /// Whether this takes more than a rate and a queue.
    pub fn is_wan(&self) -> bool {
        self.delay.is_some() || self.jitter.is_some() || self.loss.is_some()
    }
}

/// A time on the way, from 0 to 10 s. Written `10ms`, `500us`, `1.5s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay {
    ns: u64,
}

impl Delay {
    /// None at all.
    pub const ZERO: Self = Self { ns: 0 };

    /// In nanoseconds.
    pub fn ns(self) -> u64 {
        self.ns
    }

    /// In milliseconds.
    pub fn ms(self) -> f64 {
        self.ns as f64 / 1e6
    }

    /// Reads a delay, or `-` or `none` for none.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        optional(input)
    }
}

impl FromStr for Delay {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = bad("delay", "10ms, 500us, 1s", input);
        let (number, unit) = number_and_unit(input).ok_or_else(|| bad("the number cannot be read"))?;
        let ns_per_unit = match unit.as_str() {
            "s" => 1e9,
            "ms" => 1e6,
            "us" => 1e3,
            "" => return Err(bad("the unit is missing")),
            _ => return Err(bad("the unit is not s, ms or us")),
        };
        let ns = (number * ns_per_unit).round();
        if ns > DELAY_MAX_NS as f64 {
            return Err(bad("it is above 10s"));
        }
        Ok(Self { ns: ns as u64 })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns {
            ns if ns >= 1_000_000_000 => write!(f, "{}s", ns as f64 / 1e9),
            ns if ns >= 1_000_000 || ns == 0 => write!(f, "{}ms", ns as f64 / 1e6),
            ns => write!(f, "{}us", ns as f64 / 1e3),
        }
    }
}

/// A share of packets, from 0 to 100 %, in millionths. Written `0.1%`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    ppm: u32,
}

impl Loss {
    /// In millionths.
    pub fn ppm(self) -> u32 {
        self.ppm
    }

    /// In per cent.
    pub fn percent(self) -> f64 {
        f64::from(self.ppm) / 1e4
    }

    /// Reads a loss, or `-` or `none` for none.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        optional(input)
    }
}

impl FromStr for Loss {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = bad("loss", "0.1%, 2%", input);
        let (number, unit) = number_and_unit(input).ok_or_else(|| bad("the number cannot be read"))?;
        if unit != "%" {
            return Err(bad("it does not end with %"));
        }
        let ppm = (number * 1e4).round();
        if ppm > f64::from(WHOLE_PPM) {
            return Err(bad("it is above 100%"));
        }
        Ok(Self { ppm: ppm as u32 })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent())
    }
}

/// How much a queue holds: packets, written `100p`, or bytes of frames, written `3000b`, `64k` (KiB) or `1m` (MiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// So many packets, each of at most the rail's MTU.
    Packets(u64),
    /// So many bytes.
    Bytes(u64),
}

impl Queue {
    /// Reads a queue, or `-` or `none` for the one that the rate and the delay ask for.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        optional(input)
    }
}

impl FromStr for Queue {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = bad("queue", "100p (packets), 64k, 1m (bytes)", input);
        let (number, unit) = number_and_unit(input).ok_or_else(|| bad("the number cannot be read"))?;
        let scale = match unit.as_str() {
            "p" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1_048_576.0,
            "" => return Err(bad("the unit is missing")),
            _ => return Err(bad("the unit is not p, b, k or m")),
        };
        let amount = number * scale;
        if amount < 1.0 || amount > QUEUE_MAX as f64 {
            return Err(bad("it is not in 1..=1024m"));
        }
        let amount = amount.round() as u64;
        Ok(if unit == "p" { Self::Packets(amount) } else { Self::Bytes(amount) })
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bytes(bytes) if bytes.is_multiple_of(1 << 20) => write!(f, "{}m", bytes >> 20),
            Self::Bytes(bytes) if bytes.is_multiple_of(1 << 10) => write!(f, "{}k", bytes >> 10),
            Self::Bytes(bytes) => write!(f, "{bytes}b"),
        }
    }
}

macro_rules! as_text {
    ($($name:ty)*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(Delay Loss Queue);

fn optional<T: FromStr<Err = Error>>(input: &str) -> Result<Option<T>> {
    match input.trim() {
        "-" | "none" => Ok(None),
        value => value.parse().map(Some),
    }
}

/// The number is finite and not negative.
fn number_and_unit(input: &str) -> Option<(f64, String)> {
    let text = input.trim().to_ascii_lowercase();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    Some((number.parse().ok()?, unit.trim().to_owned()))
}

fn bad(what: &'static str, examples: &'static str, input: &str) -> impl Fn(&'static str) -> Error {
    let input = input.to_owned();
    move |reason| Error::BadWan { what, input: input.clone(), reason, examples }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        for text in ["10ms", "0ms", "500us", "1.5s", "10s", "0.25ms"] {
            let delay: Delay = text.parse().unwrap();
            assert_eq!(delay.to_string().parse::<Delay>().unwrap(), delay);
        }
        assert_eq!("0.25ms".parse::<Delay>().unwrap().to_string(), "250us");
        for text in ["0%", "0.1%", "0.0001%", "100%"] {
            assert_eq!(text.parse::<Loss>().unwrap().to_string(), text);
        }
        for text in ["100p", "64k", "3m", "1500b"] {
            assert_eq!(text.parse::<Queue>().unwrap().to_string(), text);
        }
        assert_eq!("0.1%".parse::<Loss>().unwrap().ppm(), 1000);
        assert_eq!("64k".parse::<Queue>().unwrap(), Queue::Bytes(65_536));
        assert_eq!(Queue::parse_optional("-").unwrap(), None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_named() {
        for text in ["", "10", "ms", "-1ms", "1h", "10.001s", "1e3ms", "nanms"] {
            assert!(text.parse::<Delay>().unwrap_err().to_string().contains(&format!("{text:?}")), "{text}");
        }
        for text in ["1", "100.001%", "-1%", "%"] {
            assert!(text.parse::<Loss>().is_err(), "{text}");
        }
        for text in ["0p", "100", "1025m", "p", "1q"] {
            assert!(text.parse::<Queue>().is_err(), "{text}");
        }
    }
}

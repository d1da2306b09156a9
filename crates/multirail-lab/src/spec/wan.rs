//! The properties that make a rail a WAN: delay, jitter, loss and queue.

use crate::error::{Error, Result};
use crate::spec::quantity::{self, serde_as_text};
use std::fmt;
use std::str::FromStr;

/// The longest delay. TCP gives up a connection attempt at longer ones.
const DELAY_MAX_NS: u64 = 10_000_000_000;
/// The largest queue, in packets or bytes. It bounds the memory of a rail.
const QUEUE_MAX: u64 = 1 << 30;
/// All packets, in parts per million.
const WHOLE_PPM: u32 = 1_000_000;

/// What a rail does to packets beside its rate. A rail with a delay, a jitter or a loss, also one
/// of zero, is a WAN.
///
/// ```
/// let wan = multirail_lab::Wan::default().with_delay("10ms".parse()?).with_loss("0.1%".parse()?);
/// assert!(wan.is_wan());
/// # Ok::<(), multirail_lab::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wan {
    /// How long a packet travels one way. The round trip takes twice as long.
    pub delay: Option<Delay>,
    /// The largest deviation from the delay, in either direction, with a uniform distribution. The
    /// order of packets does not change.
    pub jitter: Option<Delay>,
    /// The share of packets that are lost, each independently.
    pub loss: Option<Loss>,
    /// How much can wait for a rail that has a rate. A packet that finds the queue full is dropped.
    pub queue: Option<Queue>,
}

impl Wan {
    /// Sets the one-way delay.
    #[must_use]
    pub fn with_delay(mut self, delay: Delay) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Sets the largest deviation from the delay.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Delay) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// Sets the share of packets that are lost.
    #[must_use]
    pub fn with_loss(mut self, loss: Loss) -> Self {
        self.loss = Some(loss);
        self
    }

    /// Sets the capacity of the queue.
    #[must_use]
    pub fn with_queue(mut self, queue: Queue) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Whether there is a delay, a jitter or a loss, also one of zero.
    pub fn is_wan(&self) -> bool {
        self.delay.is_some() || self.jitter.is_some() || self.loss.is_some()
    }

    /// These properties, and those of `other` where this has none.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            loss: self.loss.or(other.loss),
            queue: self.queue.or(other.queue),
        }
    }
}

/// A travel time from 0 to 10 s. Written `10ms`, `500us` or `1.5s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay {
    ns: u64,
}

impl Delay {
    /// A delay of zero.
    pub const ZERO: Self = Self { ns: 0 };

    /// The delay in nanoseconds.
    pub fn ns(self) -> u64 {
        self.ns
    }

    /// The delay in milliseconds.
    pub fn ms(self) -> f64 {
        self.ns as f64 / 1e6
    }

    /// Parses a delay, or `-` or `none` for no delay.
    ///
    /// # Errors
    /// [`Error::BadWan`] if the text is neither.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        quantity::optional(input)
    }
}

impl FromStr for Delay {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = bad("delay", "10ms, 500us or 1s", input);
        let (number, unit) = quantity::split(input).ok_or_else(|| bad("the number is not valid"))?;
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

/// A share of packets from 0 to 100 %, in parts per million. Written `0.1%`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    ppm: u32,
}

impl Loss {
    /// The loss in parts per million.
    pub fn ppm(self) -> u32 {
        self.ppm
    }

    /// The loss in per cent.
    pub fn percent(self) -> f64 {
        f64::from(self.ppm) / 1e4
    }

    /// Parses a loss, or `-` or `none` for no loss.
    ///
    /// # Errors
    /// [`Error::BadWan`] if the text is neither.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        quantity::optional(input)
    }
}

impl FromStr for Loss {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = bad("loss", "0.1% or 2%", input);
        let (number, unit) = quantity::split(input).ok_or_else(|| bad("the number is not valid"))?;
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

/// The capacity of a queue: packets, written `100p`, or bytes of frames, written `3000b`, `64k`
/// (KiB) or `1m` (MiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// A number of packets, each of at most the MTU of the rail.
    Packets(u64),
    /// A number of bytes.
    Bytes(u64),
}

impl Queue {
    /// Parses a queue, or `-` or `none` for the default, which depends on rate and delay.
    ///
    /// # Errors
    /// [`Error::BadWan`] if the text is neither.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        quantity::optional(input)
    }
}

impl FromStr for Queue {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = bad("queue", "100p (packets), 64k or 1m (bytes)", input);
        let (number, unit) = quantity::split(input).ok_or_else(|| bad("the number is not valid"))?;
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

serde_as_text!(Delay Loss Queue);

fn bad(what: &'static str, examples: &'static str, input: &str) -> impl Fn(&'static str) -> Error {
    let input = input.to_owned();
    move |reason| Error::BadWan { what, input: input.clone(), reason, examples }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_are_parsed_again() {
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
    fn invalid_values_are_refused_and_quoted() {
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

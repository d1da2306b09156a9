//! A rate as people write it and as `tc` wants it.

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// How fast a rail is, in bit/s of Ethernet frames (headers included, preamble and gap not).
///
/// Written `100mbit`, `2.5gbit`, `500kbit`, `9600bit`; decimal units, 1 Mbit/s = 10^6 bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    bit_s: u64,
}

/// Below this, one full packet takes longer than a second, and nothing that is tested is meant so.
const RATE_MIN_BIT_S: u64 = 8_000;
/// Above this, no veth pair can follow.
const RATE_MAX_BIT_S: u64 = 1_000_000_000_000;

impl Rate {
    /// A rate of so many Mbit/s. Errors if it is below 8 kbit/s or above 1 Tbit/s.
    pub fn from_mbit_s(rate_mbit_s: f64) -> Result<Self> {
        Self::from_bit_s_f64(rate_mbit_s * 1e6, &format!("{rate_mbit_s}mbit"))
    }

    /// In bit/s.
    pub fn bit_s(self) -> u64 {
        self.bit_s
    }

    /// In Mbit/s.
    pub fn mbit_s(self) -> f64 {
        self.bit_s as f64 / 1e6
    }

    /// Reads a rate, or `-`, `unshaped`, `none` for no rate.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        match input.trim() {
            "-" | "unshaped" | "none" => Ok(None),
            rate => rate.parse().map(Some),
        }
    }

    fn from_bit_s_f64(bit_s: f64, input: &str) -> Result<Self> {
        let bad = |reason| Err(Error::BadRate { input: input.to_owned(), reason });
        if !bit_s.is_finite() {
            return bad("it is not a number");
        }
        let bit_s = bit_s.round();
        if bit_s < RATE_MIN_BIT_S as f64 {
            return bad("it is below 8kbit");
        }
        if bit_s > RATE_MAX_BIT_S as f64 {
            return bad("it is above 1000gbit");
        }
        Ok(Self { bit_s: bit_s as u64 })
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let text = input.trim().to_ascii_lowercase();
        let bad = |reason| Error::BadRate { input: input.to_owned(), reason };
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(|| bad("the unit is missing"))?;
        let (number, unit) = text.split_at(unit_at);
        let bit_s_per_unit = match unit {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(bad("the unit is not bit, kbit, mbit or gbit")),
        };
        let number: f64 = number.trim().parse().map_err(|_| bad("the number cannot be read"))?;
        Self::from_bit_s_f64(number * bit_s_per_unit, input)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The largest unit for which three decimals are enough: 2.5gbit, but 1234.567kbit.
        for (unit, bit_s_per_unit) in [("gbit", 1_000_000_000), ("mbit", 1_000_000)] {
            if self.bit_s >= bit_s_per_unit && (self.bit_s * 1000).is_multiple_of(bit_s_per_unit) {
                return write!(f, "{}{unit}", self.bit_s as f64 / bit_s_per_unit as f64);
            }
        }
        write!(f, "{}kbit", self.bit_s as f64 / 1e3)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        for text in ["100mbit", "2.5gbit", "500kbit", "8kbit", "1234.567kbit", "1000gbit", "25.125mbit"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_rate_and_names_it() {
        for text in ["", "fast", "100", "100mbps", "-5mbit", "7999bit", "1001gbit", "nanmbit", "1e400mbit"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_dash_is_no_rate() {
        assert_eq!(Rate::parse_optional("-").unwrap(), None);
        assert_eq!(Rate::parse_optional("1mbit").unwrap().unwrap().bit_s(), 1_000_000);
    }
}

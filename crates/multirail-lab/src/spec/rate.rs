//! The rate of a rail.

use crate::error::{Error, Result};
use crate::spec::quantity::{self, serde_as_text};
use std::fmt;
use std::str::FromStr;

/// The rate of a rail in bit/s of Ethernet frames (with headers, without preamble and gap).
///
/// Written `100mbit`, `2.5gbit`, `500kbit` or `9600bit`. Units are decimal: 1 Mbit/s = 10^6 bit/s.
/// A rate is at least 8 kbit/s and at most 1 Tbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    bit_s: u64,
}

/// The lowest rate. Below it, one full packet takes longer than a second.
const RATE_MIN_BIT_S: u64 = 8_000;
/// The highest rate. No veth pair is faster.
const RATE_MAX_BIT_S: u64 = 1_000_000_000_000;

impl Rate {
    /// A rate in Mbit/s (10^6 bit/s).
    ///
    /// # Errors
    /// [`Error::BadRate`] below 8 kbit/s or above 1 Tbit/s.
    pub fn from_mbit_s(rate_mbit_s: f64) -> Result<Self> {
        Self::from_bit_s_f64(rate_mbit_s * 1e6, &format!("{rate_mbit_s}mbit"))
    }

    /// The rate in bit/s.
    pub fn bit_s(self) -> u64 {
        self.bit_s
    }

    /// The rate in Mbit/s (10^6 bit/s).
    pub fn mbit_s(self) -> f64 {
        self.bit_s as f64 / 1e6
    }

    /// Parses a rate, or `-`, `none` or `unshaped` for no limit.
    ///
    /// # Errors
    /// [`Error::BadRate`] if the text is neither.
    pub fn parse_optional(input: &str) -> Result<Option<Self>> {
        quantity::optional(input)
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
        let bad = |reason| Error::BadRate { input: input.to_owned(), reason };
        let (number, unit) = quantity::split(input).ok_or_else(|| bad("the number is not valid"))?;
        let bit_s_per_unit = match unit.as_str() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            "" => return Err(bad("the unit is missing")),
            _ => return Err(bad("the unit is not bit, kbit, mbit or gbit")),
        };
        Self::from_bit_s_f64(number * bit_s_per_unit, input)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The largest unit that needs at most three decimals: 2.5gbit, but 1234.567kbit.
        for (unit, bit_s_per_unit) in [("gbit", 1_000_000_000), ("mbit", 1_000_000)] {
            if self.bit_s >= bit_s_per_unit && (self.bit_s * 1000).is_multiple_of(bit_s_per_unit) {
                return write!(f, "{}{unit}", self.bit_s as f64 / bit_s_per_unit as f64);
            }
        }
        write!(f, "{}kbit", self.bit_s as f64 / 1e3)
    }
}

serde_as_text!(Rate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_rates_are_parsed_again() {
        for text in ["100mbit", "2.5gbit", "500kbit", "8kbit", "1234.567kbit", "1000gbit", "25.125mbit"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
    }

    #[test]
    fn invalid_rates_are_refused_and_quoted() {
        for text in ["", "fast", "100", "100mbps", "-5mbit", "7999bit", "1001gbit", "nanmbit", "1e400mbit"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_dash_means_no_limit() {
        assert_eq!(Rate::parse_optional("-").unwrap(), None);
        assert_eq!(Rate::parse_optional("1mbit").unwrap().unwrap().bit_s(), 1_000_000);
    }
}

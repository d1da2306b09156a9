//! Sizes and rates as users write them.
//!
//! Sizes are powers of two (`64k` = 64 KiB), rates powers of ten (`100mbit` = 10^8 bit/s).

use std::time::Duration;

/// Why the text of a size or rate is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is not a {what}; write for example {example}")]
pub struct ParseUnitError {
    input: String,
    what: &'static str,
    example: &'static str,
}

/// Parses `1`, `8k`, `4m`, `20g`, `64KiB` into bytes.
///
/// # Errors
///
/// [`ParseUnitError`], if the text is no size.
pub fn parse_size(text: &str) -> Result<u64, ParseUnitError> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &lower[digits.len()..] {
        "" | "b" => Some(1u64),
        "k" | "kb" | "kib" => Some(1 << 10),
        "m" | "mb" | "mib" => Some(1 << 20),
        "g" | "gb" | "gib" => Some(1 << 30),
        "t" | "tb" | "tib" => Some(1 << 40),
        _ => None,
    };
    let value = digits.trim().parse::<u64>().ok();
    match (value, scale) {
        (Some(v), Some(s)) if v.checked_mul(s).is_some() => Ok(v * s),
        _ => Err(ParseUnitError { input: text.to_owned(), what: "size", example: "512, 8k, 4m or 1g" }),
    }
}

/// Parses `100` (Mbit/s), `100mbit`, `2.5gbit`, `500kbit` into Mbit/s.
///
/// # Errors
///
/// [`ParseUnitError`], if the text is no rate above zero.
pub fn parse_rate_mbit_s(text: &str) -> Result<f64, ParseUnitError> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let scale = match &lower[digits.len()..] {
        "" | "mbit" | "mbit/s" | "mbps" => Some(1.0),
        "kbit" | "kbit/s" | "kbps" => Some(1e-3),
        "gbit" | "gbit/s" | "gbps" => Some(1e3),
        _ => None,
    };
    let rate = digits.trim().parse::<f64>().ok().zip(scale).map(|(value, scale)| value * scale);
    match rate {
        // The value must be representable.
        Some(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err(ParseUnitError { input: text.to_owned(), what: "rate", example: "100mbit, 2.5gbit or 500kbit" }),
    }
}

/// Parses `90s`, `10m` or `2h` into a time.
///
/// # Errors
///
/// [`ParseUnitError`], if the text is no time, or one of more than a year.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &lower[digits.len()..] {
        "s" => Some(1u64),
        "m" | "min" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(scale).and_then(|(value, scale)| value.checked_mul(scale));
    match seconds {
        Some(seconds @ 0..=31_536_000) => Ok(Duration::from_secs(seconds)),
        _ => Err(ParseUnitError { input: text.to_owned(), what: "time", example: "90s, 10m or 2h" }),
    }
}

/// Parses `500k` (KiB a second), `10m` or `80mbit` into bytes a second.
///
/// # Errors
///
/// [`ParseUnitError`], if the text is no rate above zero.
pub fn parse_bytes_s(text: &str) -> Result<u64, ParseUnitError> {
    let bytes_s = match (parse_size(text), parse_rate_mbit_s(text)) {
        (Ok(bytes_s), _) => bytes_s,
        (Err(_), Ok(rate_mbit_s)) => (rate_mbit_s * 1e6 / 8.0) as u64,
        (Err(_), Err(_)) => 0,
    };
    let example = "500k or 10m, which are bytes a second, or 80mbit";
    if bytes_s == 0 { Err(ParseUnitError { input: text.to_owned(), what: "rate", example }) } else { Ok(bytes_s) }
}

/// A size in the largest suitable unit: `512 B`, `64 KiB`, `1.5 GiB`.
pub fn format_size(bytes: u64) -> String {
    const NAMES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut name = 0;
    while value >= 1024.0 && name + 1 < NAMES.len() {
        value /= 1024.0;
        name += 1;
    }
    if value.fract() < 0.05 { format!("{value:.0} {}", NAMES[name]) } else { format!("{value:.1} {}", NAMES[name]) }
}

/// Effective bandwidth in Mbit/s of a ping-pong (MuniSocket, equation 1): the message's bits over
/// half the round trip.
pub fn effective_mbit_s(message_bytes: u64, round_trip_us: f64) -> f64 {
    8.0 * message_bytes as f64 / (round_trip_us / 2.0)
}

/// Mbit/s from bytes and seconds.
pub fn rate_mbit_s(bytes: u64, seconds: f64) -> f64 {
    8.0 * bytes as f64 / 1e6 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let seconds = |text: &str| parse_duration(text).map(|time| time.as_secs());
        assert_eq!(
            (seconds("0s"), seconds("90s"), seconds(" 10M "), seconds("2h")),
            (Ok(0), Ok(90), Ok(600), Ok(7200))
        );
        for bad in ["", "10", "s", "-1s", "1.5h", "10 weeks", "366d", "99999999999999999999s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("4MiB"), Ok(4 << 20));
        assert_eq!(parse_size("17"), Ok(17));
        for bad in ["", "k", "-1", "1.5m", "99999999999999g", "1x"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate_mbit_s("100"), Ok(100.0));
        assert_eq!(parse_rate_mbit_s("2.5gbit"), Ok(2500.0));
        for bad in ["", "0", "-5mbit", "nan", "infmbit", "5 parsecs"] {
            assert!(parse_rate_mbit_s(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_a_second() {
        assert_eq!(parse_bytes_s("10m"), Ok(10 << 20));
        assert_eq!(parse_bytes_s("500"), Ok(500));
        assert_eq!(parse_bytes_s("80mbit"), Ok(10_000_000));
        for bad in ["", "0", "x", "-1", "0mbit"] {
            assert!(parse_bytes_s(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn effective_bandwidth_is_equation_one() {
        assert_eq!(effective_mbit_s(1_000_000, 160_000.0), 100.0);
    }

    #[test]
    fn sizes_read_back() {
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_size(65536), "64 KiB");
        assert_eq!(format_size(3 << 29), "1.5 GiB");
    }
}

//! What all quantities with a unit share: the division of a text into number and unit, `-` for no
//! value, and serde by that text.

use crate::error::Result;
use std::str::FromStr;

/// Splits a text into a number, which is finite and not negative, and a unit in lower case.
///
/// Returns `None` if the number is not valid.
pub(crate) fn split(input: &str) -> Option<(f64, String)> {
    let text = input.trim().to_ascii_lowercase();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    Some((number.parse().ok()?, unit.trim().to_owned()))
}

/// Parses a value, or one of the words for no value.
pub(crate) fn optional<T: FromStr<Err = crate::Error>>(input: &str) -> Result<Option<T>> {
    match input.trim() {
        "-" | "none" | "unshaped" => Ok(None),
        value => value.parse().map(Some),
    }
}

/// Implements serde for types by their `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($($name:ty)*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

pub(crate) use serde_as_text;

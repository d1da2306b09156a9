//! Option values for which a dash means none.

use multirail_lab::{Delay, Loss, Queue, Rate};
use std::str::FromStr;

/// A value, or `None` for a dash.
#[derive(Clone, Copy)]
pub struct Optional<T>(pub Option<T>);

macro_rules! parse_optional {
    ($($type:ty)*) => {$(
        impl FromStr for Optional<$type> {
            type Err = multirail_lab::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <$type>::parse_optional(text).map(Self)
            }
        }
    )*};
}

parse_optional!(Rate Delay Loss Queue);

/// The value for a rail, of one value for all rails or of one per rail.
pub fn for_rail<T: Copy>(values: &[Optional<T>], rail: usize) -> Option<T> {
    values.get(if values.len() == 1 { 0 } else { rail }).and_then(|value| value.0)
}

//! What is given on the command line for a rail, or for all.

use multirail_lab::{Delay, Loss, Queue, Rate};
use std::str::FromStr;

/// A value, or none where a dash was given.
#[derive(Clone, Copy)]
pub struct Given<T>(pub Option<T>);

macro_rules! given {
    ($($type:ty)*) => {$(
        impl FromStr for Given<$type> {
            type Err = multirail_lab::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <$type>::parse_optional(text).map(Self)
            }
        }
    )*};
}

given!(Rate Delay Loss Queue);

/// The value for a rail, of one for all or one for each.
pub fn for_rail<T: Copy>(given: &[Given<T>], rail: usize) -> Option<T> {
    given.get(if given.len() == 1 { 0 } else { rail }).and_then(|given| given.0)
}

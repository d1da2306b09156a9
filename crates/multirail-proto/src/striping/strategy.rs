//! The strategies and their names.

use crate::names::UnknownName;
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// How fragments are given to channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr, VariantArray, VariantNames)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = unknown_strategy)]
pub enum Strategy {
    /// All bytes on the best channel.
    Single,
    /// As many equal parts as channels (PSockets, section 3; with equal rails also MuniSocket's
    /// "Peak").
    EqualPartition,
    /// Every channel takes the next fragment from one counter and sends a header with it (basic
    /// MuniSocket, section 3.1).
    SharedCounter,
    /// Pairs of channels work from both ends of a partition until they meet; idle pairs help busy
    /// ones (Enhanced MuniSocket, sections 4.1 and 5.1).
    TwoEnded,
    /// Runs sized from the rates that the receiver measured, so that all channels finish together.
    Adaptive,
}

fn unknown_strategy(given: &str) -> UnknownName {
    UnknownName::new("strategy", given, <Strategy as VariantNames>::VARIANTS)
}

impl Strategy {
    /// All strategies, those of the papers first.
    pub const ALL: &'static [Strategy] = <Strategy as VariantArray>::VARIANTS;

    /// The name used in flags and results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

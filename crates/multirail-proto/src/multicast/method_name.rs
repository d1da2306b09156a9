//! The multicast methods by name.

use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// How the pieces travel from the root to all hosts.
///
/// The order of the variants is part of the wire format: invitations carry the index.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = unknown_method)]
pub enum Method {
    /// MOB with five changes: requests sized by the bandwidth-delay product, shares that move to
    /// hosts with spare rate, rarest piece first, an end game, and a tree for small data.
    #[default]
    Adaptive,
    /// MOB (HPDC 2007, section 3.1).
    Mob,
    /// BitTorrent (MOB paper, section 2.5).
    Bittorrent,
    /// Balanced Multicasting (MOB paper, section 2.4): several trees, planned from given
    /// bandwidths.
    Balanced,
    /// Fast Parallel File Replication (MOB paper, section 2.3): several trees, planned from given
    /// bandwidths.
    Fpfr,
    /// MagPIe (MOB paper, section 4.1): flat between clusters, a binomial tree within each.
    Magpie,
    /// Each host sends to the next one in the list.
    Chain,
    /// The root sends to every host.
    Flat,
}

fn unknown_method(given: &str) -> UnknownName {
    UnknownName::new("multicast method", given, <Method as VariantNames>::VARIANTS)
}

impl Method {
    /// All methods, the default first.
    pub const ALL: &'static [Method] = <Method as VariantArray>::VARIANTS;

    /// The name used in flags and results.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the method plans its trees from the bandwidths between clusters.
    pub fn needs_bandwidths(self) -> bool {
        matches!(self, Method::Balanced | Method::Fpfr)
    }
}

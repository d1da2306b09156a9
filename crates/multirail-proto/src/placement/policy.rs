//! The policies by which streams are given to ports, and their names.

use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// How streams are given to ports.
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
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = unknown_policy)]
pub enum Policy {
    /// All packets use the first port.
    Single,
    /// A hash of both Ethernet addresses.
    Layer2,
    /// A hash of IP addresses and transport ports, as LACP often uses.
    #[serde(rename = "layer3+4")]
    #[strum(serialize = "layer3+4")]
    Layer34,
    /// Each packet uses the next port.
    RoundRobin,
    /// PMCME, section 3.2: a stream with a large backlog is pinned to the next port, and packets of
    /// other streams use the next port.
    Backlog,
    /// Each pair of hosts uses all ports between them evenly (docs/decisions/0017).
    #[default]
    Adaptive,
}

impl Policy {
    /// All policies.
    pub const ALL: &'static [Policy] = <Policy as VariantArray>::VARIANTS;
}

fn unknown_policy(given: &str) -> UnknownName {
    UnknownName::new("policy", given, <Policy as VariantNames>::VARIANTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.into()).collect();
        assert_eq!(names, ["single", "layer2", "layer3+4", "round-robin", "backlog", "adaptive"]);
        assert!(Policy::ALL.iter().all(|policy| policy.to_string().parse() == Ok(*policy)));
        let error = "best".parse::<Policy>().unwrap_err();
        assert!(error.to_string().starts_with("unknown policy `best`; expected one of single, layer2, layer3+4"));
    }
}

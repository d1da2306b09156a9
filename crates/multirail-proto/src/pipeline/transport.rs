//! What can carry an edge, and which choice two hosts make.

use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// What carries an edge.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = unknown_transport)]
pub enum Transport {
    /// A queue within a process.
    Memory,
    /// Rings in memory that two processes of one host share.
    Shm,
    /// One TCP connection.
    Tcp,
    /// A session, which uses every rail between the two hosts.
    Striped,
    /// UCX: InfiniBand, RoCE, shared memory or TCP, as UCX chooses. Needs the cargo feature `ucx`.
    Ucx,
}

fn unknown_transport(given: &str) -> UnknownName {
    UnknownName::new("transport", given, <Transport as VariantNames>::VARIANTS)
}

impl Transport {
    /// All transports.
    pub const ALL: &'static [Transport] = <Transport as VariantArray>::VARIANTS;

    /// The name used in flags, files and results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What the host that dials offers: the transport that was asked for by name, or all that may be
/// the best.
///
/// `has_fabric` means that UCX is built in and that the host has an RDMA device for it. Without
/// such a device, UCX would be a single TCP connection.
pub fn offers(asked: Option<Transport>, has_fabric: bool) -> Vec<Transport> {
    match asked {
        Some(only) => vec![only],
        None => by_preference(has_fabric),
    }
}

/// What the accepting host tries, the best first.
///
/// `same_machine` means that both hosts are processes of one machine, `has_fabric` is as for
/// [`offers`], on the accepting host.
pub fn candidates(offers: &[Transport], same_machine: bool, has_fabric: bool) -> Vec<Transport> {
    match offers {
        // A transport that was asked for by name is tried in any case, so that the reason for its
        // failure is reported.
        [only] => vec![*only],
        _ => {
            let mut best = by_preference(has_fabric);
            best.retain(|t| offers.contains(t) && (same_machine || *t != Transport::Shm));
            best
        }
    }
}

/// Memory is faster than any network, and an RDMA device is faster than rails that the processor
/// drives.
fn by_preference(has_fabric: bool) -> Vec<Transport> {
    let mut all = vec![Transport::Shm, Transport::Striped, Transport::Tcp];
    if has_fabric {
        all.insert(1, Transport::Ucx);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use Transport::{Shm, Striped, Tcp, Ucx};

    #[test]
    fn ucx_is_chosen_without_being_asked_for_only_where_both_ends_have_a_fabric() {
        for (dials, accepts, same_machine, first) in [
            (true, true, false, Ucx),
            (true, false, false, Striped),
            (false, true, false, Striped),
            (false, false, false, Striped),
            (true, true, true, Shm),
            (false, false, true, Shm),
        ] {
            let tried = candidates(&offers(None, dials), same_machine, accepts);
            assert_eq!(tried[0], first, "{dials} {accepts} {same_machine}");
            assert_eq!(tried.last(), Some(&Tcp), "something is left where the best does not work");
        }
    }

    #[test]
    fn a_named_transport_is_the_only_one_tried() {
        for asked in [Shm, Striped, Tcp, Ucx] {
            for (dials, accepts) in [(true, true), (false, false)] {
                assert_eq!(candidates(&offers(Some(asked), dials), false, accepts), [asked]);
            }
        }
    }

    #[test]
    fn transports_have_names() {
        assert!(Transport::ALL.iter().all(|t| t.name().parse() == Ok(*t) && t.to_string() == t.name()));
        assert_eq!(
            "pigeon".parse::<Transport>().unwrap_err().to_string(),
            "unknown transport `pigeon`; expected one of memory, shm, tcp, striped or ucx"
        );
    }

    #[test]
    fn nothing_is_tried_that_was_not_offered() {
        assert_eq!(candidates(&[Tcp, Ucx], true, true), [Ucx, Tcp]);
        assert_eq!(candidates(&[Tcp, Ucx], true, false), [Tcp]);
        assert!(candidates(&[], true, true).is_empty());
    }
}

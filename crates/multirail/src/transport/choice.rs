//! Which transports a host offers for an edge, and which its peer tries. Nothing is probed here.

use super::Transport;

/// What the side that dials offers: what was asked for by name, or all that may be best. `fabric`: UCX is built in, and there is an
/// RDMA device for it; without one, UCX would be a single connection of TCP.
pub(super) fn offers(asked: Option<Transport>, fabric: bool) -> Vec<Transport> {
    match asked {
        Some(only) => vec![only],
        None => with_ucx(fabric, &[Transport::Shm, Transport::Striped, Transport::Tcp]),
    }
}

/// What the other side tries, the best first. `together`: both are on one machine. `fabric`: as for [`offers`], here.
pub(super) fn tries(offers: &[Transport], together: bool, fabric: bool) -> Vec<Transport> {
    match offers {
        // Whoever asks by name is told why it does not work.
        [only] => vec![*only],
        _ => {
            let mut best = with_ucx(fabric, &[Transport::Shm, Transport::Striped, Transport::Tcp]);
            best.retain(|t| offers.contains(t) && (together || *t != Transport::Shm));
            best
        }
    }
}

/// Memory is faster than any network, and an RDMA device faster than rails that the processor drives.
fn with_ucx(fabric: bool, others: &[Transport]) -> Vec<Transport> {
    let mut all = others.to_vec();
    if fabric {
        all.insert(1, Transport::Ucx);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use Transport::{Shm, Striped, Tcp, Ucx};

    #[test]
    fn ucx_is_chosen_by_itself_only_where_both_ends_have_a_fabric() {
        for (dials, serves, together, first) in [
            (true, true, false, Ucx),
            (true, false, false, Striped),
            (false, true, false, Striped),
            (false, false, false, Striped),
            (true, true, true, Shm),
            (false, false, true, Shm),
        ] {
            let tried = tries(&offers(None, dials), together, serves);
            assert_eq!(tried[0], first, "{dials} {serves} {together}");
            assert_eq!(tried.last(), Some(&Tcp), "something is left where the best does not work");
        }
    }

    #[test]
    fn what_is_asked_for_by_name_is_all_that_is_tried() {
        for asked in [Shm, Striped, Tcp, Ucx] {
            for (dials, serves) in [(true, true), (false, false)] {
                assert_eq!(tries(&offers(Some(asked), dials), false, serves), [asked]);
            }
        }
    }

    #[test]
    fn nothing_is_tried_that_was_not_offered() {
        assert_eq!(tries(&[Tcp, Ucx], true, true), [Ucx, Tcp]);
        assert_eq!(tries(&[Tcp, Ucx], true, false), [Tcp]);
        assert!(tries(&[], true, true).is_empty());
    }
}

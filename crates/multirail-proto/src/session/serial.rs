//! Serial numbers of messages. They wrap around.

/// Whether serial number `a` comes before `b`.
pub(super) fn serial_less(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The serial number nearest to `near` whose lower half is `low`.
///
/// The two sides are at most [`MAX_HELD_MESSAGES`](super::MAX_HELD_MESSAGES) apart, so the lower
/// half is enough.
pub(super) fn serial_near(near: u32, low: u16) -> u32 {
    let ahead = low.wrapping_sub(near as u16) as i16;
    near.wrapping_add_signed(i32::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::super::limits::MAX_HELD_MESSAGES;
    use super::*;

    #[test]
    fn serial_numbers_are_found_by_their_lower_half() {
        let most = MAX_HELD_MESSAGES as u32 + 1;
        for near in [0, 5, 65_535, 65_536, u32::MAX - 3, u32::MAX] {
            for serial in [near.wrapping_sub(most), near.wrapping_sub(1), near, near.wrapping_add(most)] {
                assert_eq!(serial_near(near, serial as u16), serial, "near {near}");
            }
        }
    }

    #[test]
    fn serial_numbers_wrap_around() {
        assert!(serial_less(u32::MAX, 0) && !serial_less(0, u32::MAX));
        assert!(serial_less(1, 2) && !serial_less(2, 2));
    }
}

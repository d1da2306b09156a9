//! How long a message of streams is.

use crate::session::COPY_LIMIT_BYTES;

/// The time that a message may take on all rails together.
const MESSAGE_S: f64 = 1e-3;
/// Shorter messages would cost more than they carry.
const MIN_MESSAGE_BYTES: usize = 8 << 10;

/// The most bytes of a message, by the rate of all rails together; 0 is unknown.
///
/// What was begun cannot be overtaken, and what a rail with a long delay carries arrives late as a whole.
pub fn message_bytes(rate_bytes_s: f64) -> usize {
    let most = COPY_LIMIT_BYTES as usize;
    if rate_bytes_s <= 0.0 {
        return most;
    }
    ((rate_bytes_s * MESSAGE_S) as usize).clamp(MIN_MESSAGE_BYTES, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_a_millisecond_within_limits() {
        assert_eq!(message_bytes(0.0), 64 << 10);
        assert_eq!(message_bytes(25e6), 25_000);
        assert_eq!(message_bytes(1e6), 8 << 10);
        assert_eq!(message_bytes(1e9), 64 << 10);
    }
}

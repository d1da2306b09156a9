//! The byte streams of a session beside a peer that sends anything.

use multirail_proto::session::Role;
use multirail_proto::streams::{MAX_STREAMS, ReadOutcome, ResetCode, StreamEvent, StreamId, Streams};

/// The most bytes of a message that this side makes.
const MESSAGE_BYTES: usize = 1000;
/// Events that one operation may cause, for each stream.
const MAX_EVENTS: usize = 8 * MAX_STREAMS;

/// Operations, one after another: a kind, a length or a stream, and for a message of the peer its bytes.
///
/// Whatever comes, this side keeps no more streams than it may, makes no message that is too long, and
/// has nothing to send for ever.
pub fn streams(mut bytes: &[u8]) {
    let role = if bytes.first().is_some_and(|kind| kind & 1 == 1) { Role::Dialler } else { Role::Listener };
    let (mut side, mut known) = (Streams::new(role), Vec::<StreamId>::new());
    while let [kind, which, rest @ ..] = bytes {
        bytes = rest;
        let stream = known.get(usize::from(*which) % known.len().max(1)).copied();
        match (kind % 10, stream) {
            (0..=4, _) => {
                let (message, behind) = rest.split_at(rest.len().min(usize::from(*which)));
                bytes = behind;
                if side.handle_message(message).is_err() {
                    return;
                }
            }
            (5, _) => known.extend(side.open()),
            (6, Some(stream)) => drop(side.write(stream, &[7; 300])),
            (7, Some(stream)) => side.finish(stream),
            (8, Some(stream)) => {
                if let ReadOutcome::Bytes(bytes) = side.read(stream) {
                    let count = bytes.len().div_ceil(2);
                    side.consume(stream, count);
                }
            }
            (9, Some(stream)) if which & 1 == 1 => side.reset(stream, ResetCode(3)),
            (9, Some(stream)) => {
                side.release(stream);
                known.retain(|other| *other != stream);
            }
            _ => {}
        }
        let mut events = 0;
        while let Some(event) = side.poll_event() {
            events += 1;
            assert!(events <= MAX_EVENTS, "events without an end");
            if let StreamEvent::Opened(stream) = event {
                known.push(stream);
            }
        }
        assert!(side.count() <= 2 * MAX_STREAMS);
    }
    for messages in 0.. {
        let mut message = Vec::new();
        if !side.next_message(&mut message, MESSAGE_BYTES) {
            break;
        }
        assert!(message.len() <= MESSAGE_BYTES && messages < 1_000_000, "it sends for ever");
    }
}

//! Proving that both sides know a secret, without giving a guesser more than one try for each
//! connection: SPAKE2 (RFC 9382), by the crate `spake2`.

use spake2::{Ed25519Group, Identity, Password, Spake2};

/// The message of one side: a point of the curve.
pub(crate) type Message = [u8; 32];

/// What the crate puts before the client's point, and before the server's.
const SIDES: [u8; 2] = [b'A', b'B'];

/// The state of one side between its message and the peer's.
pub(crate) struct Exchange {
    state: Spake2<Ed25519Group>,
    peer: u8,
}

impl Exchange {
    /// Begins the client's side.
    pub(crate) fn client(secret: &[u8]) -> (Self, Message) {
        let (state, message) = Spake2::start_a(&Password::new(secret), &client(), &server());
        Self::new(state, SIDES[1], &message)
    }

    /// Begins the server's side.
    pub(crate) fn server(secret: &[u8]) -> (Self, Message) {
        let (state, message) = Spake2::start_b(&Password::new(secret), &client(), &server());
        Self::new(state, SIDES[0], &message)
    }

    fn new(state: Spake2<Ed25519Group>, peer: u8, message: &[u8]) -> (Self, Message) {
        let point = message[1..].try_into().expect("a point of this curve has 32 bytes");
        (Self { state, peer }, point)
    }

    /// The key that the peer has, too, if it knows the same secret; `None` if its message is invalid.
    pub(crate) fn finish(self, message: &Message) -> Option<Vec<u8>> {
        self.state.finish(&[&[self.peer], &message[..]].concat()).ok()
    }
}

fn client() -> Identity {
    Identity::new(b"multirail client")
}

fn server() -> Identity {
    Identity::new(b"multirail server")
}

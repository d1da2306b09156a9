//! First contact: two hosts learn each other's keys by a short code that a person carries.
//!
//! The code is a [token](Token) that is good for one attempt. The handshake proves by a PAKE that both
//! sides know it, and binds the proof to the keys of the two sides, so each may keep the other's key. An
//! attacker gets one guess and nothing to test guesses with, so a short code suffices.

use crate::error::{Error, Result};
use crate::protocol::ProtocolName;
use crate::request::{receive, receive_request, send, send_request};
use crate::session::{Accepted, Config, ListenConfig, Listener, NewSession};
use crate::{PublicKey, Session, Token};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// The port of a host that offers to pair, if nothing else is said. A server may run on the other one.
pub const PAIRING_PORT: u16 = crate::DEFAULT_PORT + 1;

const PAIR: ProtocolName = ProtocolName::new("pair");
/// How long the other side may take after the handshake.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// The longest name of a client, in bytes.
const MAX_NAME_BYTES: usize = 64;

#[derive(Serialize, Deserialize)]
struct PairRequest {
    name: String,
}

/// The server has kept the client's key, or says why not.
type PairAnswer = Result<(), String>;

/// A host that waits for one other to pair with.
#[derive(Debug)]
pub struct Offer {
    listener: Listener,
    code: Token,
}

impl Offer {
    /// Listens for a host that knows the code. Only the identity of the sessions' configuration counts.
    ///
    /// # Errors
    ///
    /// Those of [`Listener::bind`].
    pub async fn bind(listen: ListenConfig, code: &str) -> Result<Self> {
        let code = token(code);
        let session = Config::new().identity(listen.session.identity.clone()).token(code.clone());
        let listener = Listener::bind(ListenConfig { session, ..listen }).await?;
        Ok(Self { listener, code })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Waits for the other host. `keep` gets its key and its name, which has letters, digits and `@._-`
    /// only. If `keep` fails, the other host keeps no key either.
    ///
    /// # Errors
    ///
    /// [`Error::CodeWrong`] at the first wrong code; [`Error::Aborted`] with the reason of `keep`; those of
    /// the session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the offer.
    pub async fn paired(mut self, keep: impl FnOnce(PublicKey, &str) -> Result<(), String>) -> Result<SocketAddr> {
        let new = loop {
            let accepted = tokio::select! {
                biased;
                accepted = self.listener.accept() => accepted?,
                () = self.code.failed() => return Err(Error::CodeWrong),
            };
            match accepted {
                // The same user's key alone opens a session, too.
                Accepted::Session(new) if new.identity().has_token => break new,
                _ => {}
            }
        };
        let peer = new.peer();
        tokio::time::timeout(ANSWERS_WITHIN, answer(new, keep)).await.map_err(|_| too_slow(peer))??;
        Ok(peer)
    }
}

async fn answer(new: NewSession, keep: impl FnOnce(PublicKey, &str) -> Result<(), String>) -> Result<()> {
    let mut session = new.start();
    let request = receive_request(&mut session).await?;
    if request.protocol() != PAIR {
        return Err(Error::Protocol(format!("a request for `{}` instead of a pairing", request.protocol())));
    }
    let PairRequest { name } = request.parse()?;
    let kept = keep(session.peer().key, &plain(&name));
    send::<PairAnswer>(&mut session, &kept).await?;
    // The other side ends when it has the answer, which may be before it has confirmed that.
    let _ = session.close().await;
    kept.map_err(Error::Aborted)
}

/// Pairs with `host`, which offers it. `name` is what the server calls this side. The configuration has
/// the identity and the known hosts.
///
/// # Errors
///
/// [`Error::CodeWrong`]; [`Error::HostChanged`] if another key of the host is known, before the code is
/// used; [`Error::Aborted`] if the server does not keep this side's key; those of [`Session::connect`].
///
/// # Cancel safety
///
/// Dropping the future ends the attempt. The server may have kept the key.
pub async fn pair(host: &str, code: &str, name: &str, config: &Config) -> Result<PublicKey> {
    let config =
        Config::new().identity(config.identity.clone()).known_hosts(config.known_hosts.clone()).token(token(code));
    let mut session = Session::connect(host, config).await.map_err(|error| match error {
        Error::TokenWrong => Error::CodeWrong,
        error => error,
    })?;
    let key = session.peer().key;
    let answered = async {
        send_request(&mut session, PAIR, &PairRequest { name: plain(name) }).await?;
        receive::<PairAnswer>(&mut session).await
    };
    let answered = tokio::time::timeout(ANSWERS_WITHIN, answered).await.map_err(|_| too_slow(host))??;
    let _ = session.close().await;
    answered.map_err(Error::Aborted)?;
    Ok(key)
}

/// The code as a token. Case, and what is between the words, do not matter.
fn token(code: &str) -> Token {
    let words = code.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let plain: Vec<String> = words.map(str::to_lowercase).collect();
    Token::once(format!("multirail 2026 pairing {}", plain.join("-")).as_bytes())
}

/// A name that can be in a line of a file and on a terminal.
fn plain(name: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "@._-".contains(*letter);
    name.chars().filter(is_plain).take(MAX_NAME_BYTES).collect()
}

fn too_slow(peer: impl ToString) -> Error {
    Error::HandshakeTimeout { peer: peer.to_string(), after: ANSWERS_WITHIN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, KnownHosts};
    use std::sync::Mutex;

    async fn offer(code: &str) -> (Offer, String) {
        let config = Config::new().identity(Identity::generate());
        let offer = Offer::bind(ListenConfig::new(([127, 0, 0, 1], 0), config), code).await.unwrap();
        let address = offer.address().to_string();
        (offer, address)
    }

    fn client() -> Config {
        Config::new().identity(Identity::generate())
    }

    #[tokio::test]
    async fn both_sides_learn_the_other_ones_key() {
        let (offer, address) = offer("one-two-three").await;
        let (config, kept) = (client(), Mutex::new(None));
        let keep = |key, name: &str| {
            *kept.lock().unwrap() = Some((key, name.to_owned()));
            Ok(())
        };
        let pairing = pair(&address, " One two  THREE\n", "me@here\n\x1b[2J", &config);
        let (served, paired) = tokio::join!(offer.paired(keep), pairing);
        served.unwrap();
        paired.unwrap();
        assert_eq!(kept.into_inner().unwrap(), Some((config.identity.public_key(), "me@here2J".to_owned())));
    }

    #[tokio::test]
    async fn the_first_wrong_code_ends_the_offer() {
        let (offer, address) = offer("one-two-three").await;
        let keep = |_, _: &str| panic!("nothing is to be kept");
        let config = client();
        let guesses = futures_util::future::join_all((0..20).map(|_| pair(&address, "wrong", "", &config)));
        let (guesses, served) = tokio::join!(guesses, offer.paired(keep));
        assert!(matches!(served, Err(Error::CodeWrong)), "{served:?}");
        assert!(guesses.iter().all(Result::is_err), "{guesses:?}");
    }

    #[tokio::test]
    async fn one_attempt_is_all_that_is_evaluated() {
        let (mut offer, address) = offer("right").await;
        let config = client();
        assert!(matches!(pair(&address, "wrong", "", &config).await, Err(Error::CodeWrong)));
        // The offer has not looked yet, and the right code is too late.
        assert!(matches!(pair(&address, "right", "", &config).await, Err(Error::CodeWrong)));
        assert!(futures_util::FutureExt::now_or_never(offer.listener.accept()).is_none());
    }

    #[tokio::test]
    async fn a_known_host_with_another_key_uses_no_attempt() {
        let (offer, address) = offer("right").await;
        let other = client().known_hosts(KnownHosts::default().with("127.0.0.1", Identity::generate().public_key()));
        assert!(matches!(pair(&address, "right", "", &other).await, Err(Error::HostChanged { .. })));
        let own = client();
        let (served, paired) = tokio::join!(offer.paired(|_, _| Ok(())), pair(&address, "right", "", &own));
        assert!(served.is_ok() && paired.is_ok(), "{served:?} {paired:?}");
    }

    #[tokio::test]
    async fn a_key_that_the_server_does_not_keep_is_not_kept_by_the_client() {
        let (offer, address) = offer("right").await;
        let config = client();
        let keep = |_, _: &str| Err("the disk is full".to_owned());
        let (served, paired) = tokio::join!(offer.paired(keep), pair(&address, "right", "", &config));
        for result in [served.map(drop), paired.map(drop)] {
            assert!(matches!(&result, Err(Error::Aborted(why)) if why == "the disk is full"), "{result:?}");
        }
    }
}

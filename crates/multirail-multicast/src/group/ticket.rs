//! A ticket: a line of text with which a host joins a broadcast that no list named it for.

use crate::wire::GroupId;
use data_encoding::BASE32_NOPAD;
use multirail_net::{Config, PublicKey, Token};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What the text of a ticket begins with, with the version of its form.
const PREFIX: &str = "mr1";
/// The length of the checksum in bytes.
const CHECKSUM_BYTES: usize = 4;
/// The most addresses of a ticket.
pub(super) const MAX_ADDRESSES: usize = 16;
/// The longest text that is read.
const MAX_TEXT_BYTES: usize = 8192;

/// The secret of a broadcast for which the root was given no token.
pub(super) type TicketSecret = [u8; 16];

/// Where a broadcast is and what it sends: the root's key and addresses, the group, and the hash of the
/// manifest. The text has letters and digits only: `mr1`, then base32 of the fields and of a checksum.
///
/// A ticket of a broadcast for which the root was given neither a token nor hosts carries a secret: everyone
/// who has it can get the data. With another ticket, a host needs the token of the broadcast, too.
///
/// # Examples
///
/// ```
/// use multirail_multicast::{Ticket, TicketError};
///
/// assert_eq!("mr1abc".parse::<Ticket>().unwrap_err(), TicketError::Altered);
/// assert_eq!("https://example.org".parse::<Ticket>().unwrap_err(), TicketError::NoTicket);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    body: Body,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Body {
    root: [u8; 32],
    group: GroupId,
    manifest: [u8; 32],
    secret: Option<TicketSecret>,
    /// `name:port` or `address:port`.
    addresses: Vec<String>,
}

/// Why a text is no ticket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// The text does not begin like a ticket.
    #[error("this is no ticket: a ticket begins with `{PREFIX}`")]
    NoTicket,
    /// The checksum does not fit, or the text ends too early.
    #[error("the ticket was altered or is incomplete; copy the whole line again")]
    Altered,
}

impl Ticket {
    /// At most [`MAX_ADDRESSES`] addresses count.
    pub(super) fn new(
        root: PublicKey,
        group: GroupId,
        manifest: [u8; 32],
        secret: Option<TicketSecret>,
        mut addresses: Vec<String>,
    ) -> Self {
        addresses.truncate(MAX_ADDRESSES);
        Self { body: Body { root: *root.as_bytes(), group, manifest, secret, addresses } }
    }

    /// The key of the root.
    pub fn root(&self) -> PublicKey {
        PublicKey::from_bytes(self.body.root)
    }

    /// The BLAKE3 hash of the manifest, which has the hashes of all pieces.
    pub fn manifest(&self) -> &[u8; 32] {
        &self.body.manifest
    }

    /// Where the root is: `name:port` or `address:port`.
    pub fn addresses(&self) -> &[String] {
        &self.body.addresses
    }

    /// Whether the ticket alone gives access to the data.
    pub fn has_secret(&self) -> bool {
        self.body.secret.is_some()
    }

    pub(super) fn group(&self) -> GroupId {
        self.body.group
    }

    /// The configuration of a host that uses the ticket.
    pub(super) fn config(&self, given: &Config) -> Config {
        match &self.body.secret {
            Some(secret) => given.clone().token(secret_token(secret)),
            None => given.clone(),
        }
    }
}

/// The token of a broadcast with this secret.
pub(super) fn secret_token(secret: &TicketSecret) -> Token {
    Token::new(secret)
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = blake3::derive_key("multirail 2026 ticket", body);
    [hash[0], hash[1], hash[2], hash[3]]
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = postcard::to_allocvec(&self.body).map_err(|_| fmt::Error)?;
        bytes.extend(checksum(&bytes));
        write!(f, "{PREFIX}{}", BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
    }
}

impl fmt::Debug for Ticket {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Body { root: _, group: _, manifest: _, secret, addresses } = &self.body;
        let (root, has_secret) = (self.root(), secret.is_some());
        f.debug_struct("Ticket")
            .field("root", &root)
            .field("addresses", addresses)
            .field("has_secret", &has_secret)
            .finish_non_exhaustive()
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    /// White space around the text and upper case make no difference.
    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let begins = text.get(..PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX));
        if !begins {
            return Err(TicketError::NoTicket);
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(TicketError::Altered);
        }
        let digits = text[PREFIX.len()..].to_ascii_uppercase();
        let bytes = BASE32_NOPAD.decode(digits.as_bytes()).map_err(|_| TicketError::Altered)?;
        let at = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(TicketError::Altered)?;
        let (body, sum) = bytes.split_at(at);
        if checksum(body) != sum {
            return Err(TicketError::Altered);
        }
        match postcard::take_from_bytes::<Body>(body) {
            Ok((body, [])) if body.addresses.len() <= MAX_ADDRESSES => Ok(Self { body }),
            _ => Err(TicketError::Altered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use multirail_net::Identity;
    use proptest::prelude::*;

    fn ticket(secret: Option<TicketSecret>) -> Ticket {
        let addresses = vec!["10.0.0.1:4000".to_owned(), "[fd00::1]:4000".to_owned()];
        Ticket::new(Identity::generate().public_key(), [3; 16], [4; 32], secret, addresses)
    }

    #[test]
    fn a_ticket_survives_its_text_also_in_upper_case_and_with_white_space() {
        for secret in [None, Some([5; 16])] {
            let ticket = ticket(secret);
            let text = ticket.to_string();
            assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{text}");
            assert_eq!(text.parse(), Ok(ticket.clone()));
            assert_eq!(format!("  {}\n", text.to_ascii_uppercase()).parse(), Ok(ticket));
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        assert!(!format!("{:?}", ticket(Some([5; 16]))).contains("5, 5"));
    }

    proptest! {
        #[test]
        fn an_altered_ticket_is_refused(at in 3usize..200, letter in "[a-z2-7]", cut in 1usize..40) {
            let text = ticket(Some([5; 16])).to_string();
            let mut altered = text.clone();
            let at = at.min(text.len() - 1);
            altered.replace_range(at..=at, &letter);
            if altered != text {
                prop_assert_eq!(altered.parse::<Ticket>(), Err(TicketError::Altered));
            }
            prop_assert_eq!(text[..text.len() - cut].parse::<Ticket>(), Err(TicketError::Altered));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "(mr1)?\\PC{0,80}") {
            let _ = text.parse::<Ticket>();
        }
    }
}

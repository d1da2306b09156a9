//! The secret that both sides of a connection must know.

use crate::error::{Error, Result, TokenError};
use crate::private_file::{self, FileError};
use data_encoding::BASE64;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The fewest characters of a token that is text. Random characters of base64 then carry 132 bits.
pub const MIN_TEXT_CHARACTERS: usize = 22;
/// The fewest bytes of a token that is not text. Random bytes then carry 128 bits.
pub const MIN_BINARY_BYTES: usize = 16;
/// The longest token, in bytes.
pub const MAX_BYTES: usize = 4096;

/// The secret that both sides must know.
#[derive(Clone)]
pub struct Token {
    key: [u8; 32],
    /// Of a token that is good for one attempt.
    attempt: Option<Arc<Attempt>>,
}

/// The only attempt to prove a token.
#[derive(Default)]
struct Attempt {
    is_used: AtomicBool,
    failed: Notify,
}

impl Token {
    /// Makes a token from bytes that both sides know, however few.
    ///
    /// An attacker can try one guess with each connection. [`Token::from_secret`] refuses short
    /// secrets.
    pub fn new(secret: &[u8]) -> Self {
        Self { key: blake3::derive_key("multirail 2026 session token", secret), attempt: None }
    }

    /// As [`Token::new`], for a server that lets clients try one guess in all: after the first proof,
    /// right or wrong, none is looked at.
    pub(crate) fn once(secret: &[u8]) -> Self {
        Self { attempt: Some(Arc::default()), ..Self::new(secret) }
    }

    /// Whether a proof may be looked at.
    pub(crate) fn take_attempt(&self) -> bool {
        self.attempt.as_ref().is_none_or(|attempt| !attempt.is_used.swap(true, Ordering::Relaxed))
    }

    /// Notes that a proof was wrong.
    pub(crate) fn fail(&self) {
        if let Some(attempt) = &self.attempt {
            attempt.failed.notify_one();
        }
    }

    /// Waits until the only attempt has failed.
    pub(crate) async fn failed(&self) {
        match &self.attempt {
            Some(attempt) => attempt.failed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Makes a token from a secret of at least 128 bits, without leading and trailing white space.
    ///
    /// The bits are estimated from the length, as if the secret was random. UTF-8 text without
    /// control characters needs 22 characters, as 128 bits have in base64. Other secrets need 16
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`TokenError::Short`] or [`TokenError::Long`].
    pub fn from_secret(secret: &[u8]) -> Result<Self, TokenError> {
        let secret = secret.trim_ascii();
        let text = std::str::from_utf8(secret).ok().filter(|text| text.chars().all(is_text));
        let (length, needed, unit) = match text {
            Some(text) => (text.chars().count(), MIN_TEXT_CHARACTERS, "characters"),
            None => (secret.len(), MIN_BINARY_BYTES, "bytes"),
        };
        if length < needed {
            return Err(TokenError::Short { length, needed, unit });
        }
        if secret.len() > MAX_BYTES {
            return Err(TokenError::Long { most_bytes: MAX_BYTES });
        }
        Ok(Self::new(secret))
    }

    /// Reads a token from a file that only its owner can read and write, as
    /// [`Token::from_secret`] does.
    ///
    /// # Errors
    ///
    /// [`Error::TokenFile`] if the file cannot be read, if its mode lets other users read or write
    /// it, or if its secret is too short or too long.
    pub fn from_file(path: &Path) -> Result<Self> {
        // One byte more than allowed: a longer file is then refused, not cut.
        let secret = private_file::read(path, MAX_BYTES + 1).map_err(TokenError::from);
        let token = secret.and_then(|secret| match secret.len() {
            ..=MAX_BYTES => Self::from_secret(&secret),
            _ => Err(TokenError::Long { most_bytes: MAX_BYTES }),
        });
        token.map_err(|why| Error::TokenFile { path: path.to_owned(), why })
    }

    /// Creates a file that only its owner can read and write, with a new token of 256 random bits
    /// in base64. An existing file is never overwritten.
    ///
    /// # Errors
    ///
    /// [`Error::TokenFile`] if the file exists or cannot be written, or if its file system does not
    /// keep other users from it. No new file is left behind then.
    pub fn create_file(path: &Path) -> Result<()> {
        let mut secret = [0; 32];
        let created = getrandom::fill(&mut secret)
            .map_err(|e| FileError::Io(io::Error::other(e.to_string())))
            .and_then(|()| private_file::create(path, format!("{}\n", BASE64.encode(&secret)).as_bytes()));
        created.map_err(|why| Error::TokenFile { path: path.to_owned(), why: why.into() })
    }

    /// Derives a key for a use other than sessions. The token cannot be recovered from it.
    pub fn key_for(&self, use_: &'static str) -> [u8; 32] {
        blake3::derive_key(use_, &self.key)
    }

    /// What a handshake proves.
    pub(crate) fn handshake_secret(&self) -> [u8; 32] {
        self.key_for("multirail 2026 handshake")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Whether a secret with this character can be text.
fn is_text(character: char) -> bool {
    !character.is_control() || character.is_whitespace()
}

impl From<FileError> for TokenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Shared { mode } => Self::Shared { mode },
            FileError::Io(error) => Self::Io(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;
    use std::sync::atomic::AtomicU32;

    /// A temporary directory that is removed when this is dropped.
    struct Temp(PathBuf);

    impl Temp {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("multirail-token-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// A file with this content, which only its owner can read and write.
        fn file(&self, content: &[u8]) -> PathBuf {
            let path = self.0.join("token");
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn why(refused: Result<impl fmt::Debug>) -> TokenError {
        match refused.unwrap_err() {
            Error::TokenFile { why, .. } => why,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_short_secret_is_refused() {
        let short = |secret: &[u8]| match Token::from_secret(secret) {
            Err(TokenError::Short { length, needed, unit }) => Some((length, needed, unit)),
            other => other.map(|_| None).unwrap(),
        };
        assert_eq!(short(b"summer2024"), Some((10, 22, "characters")));
        assert_eq!(short(&[b'a'; 21]), Some((21, 22, "characters")));
        assert_eq!(short(&[b'a'; 22]), None);
        assert_eq!(short(b"  two words and\ta tab \n"), Some((19, 22, "characters")), "it is text");
        assert_eq!(short("\u{e9}".repeat(21).as_bytes()), Some((21, 22, "characters")));
        assert_eq!(short(&[0xff; 15]), Some((15, 16, "bytes")));
        assert_eq!(short(&[0xff; 16]), None);
        assert_eq!(short(b""), Some((0, 22, "characters")));
    }

    #[test]
    fn a_long_secret_is_refused() {
        let temp = Temp::new();
        assert!(Token::from_secret(&[b'a'; MAX_BYTES]).is_ok());
        assert!(Token::from_file(&temp.file(&[b'a'; MAX_BYTES])).is_ok());
        let long = [b'a'; MAX_BYTES + 1];
        assert!(matches!(Token::from_secret(&long), Err(TokenError::Long { most_bytes: MAX_BYTES })));
        assert!(matches!(why(Token::from_file(&temp.file(&long))), TokenError::Long { .. }));
    }

    #[test]
    fn white_space_around_a_secret_does_not_count() {
        let temp = Temp::new();
        let (secret, other) = (b"0123456789abcdefghijkl", b"0123456789abcdefghijkL");
        let key = |token: Token| token.key;
        let read = key(Token::from_file(&temp.file(b" 0123456789abcdefghijkl\r\n")).unwrap());
        assert_eq!(read, key(Token::from_secret(secret).unwrap()));
        assert_ne!(read, key(Token::from_secret(other).unwrap()));
    }

    #[test]
    fn a_file_of_more_users_than_its_owner_is_refused() {
        let temp = Temp::new();
        let path = temp.file(&[b'a'; 32]);
        for (mode, accepted) in [
            (0o600, true),
            (0o400, true),
            (0o711, true),
            (0o640, false),
            (0o620, false),
            (0o604, false),
            (0o602, false),
            (0o644, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match Token::from_file(&path) {
                Ok(_) => assert!(accepted, "{mode:o}"),
                refused => {
                    assert!(!accepted, "{mode:o}");
                    let text = refused.as_ref().unwrap_err().to_string();
                    assert!(text.contains(&format!("{mode:04o}")) && text.contains("/token"), "{text}");
                    assert!(matches!(why(refused), TokenError::Shared { mode: found } if found == mode));
                }
            }
        }
    }

    #[test]
    fn a_new_file_belongs_to_its_owner_and_replaces_nothing() {
        let temp = Temp::new();
        let (one, other) = (temp.0.join("one"), temp.0.join("other"));
        for path in [&one, &other] {
            Token::create_file(path).unwrap();
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o600);
            let content = fs::read_to_string(path).unwrap();
            assert!(content.len() == 45 && content.ends_with("=\n"), "{content}");
        }
        assert_ne!(Token::from_file(&one).unwrap().key, Token::from_file(&other).unwrap().key);
        let before = fs::read(&one).unwrap();
        let exists = why(Token::create_file(&one));
        assert!(matches!(&exists, TokenError::Io(error) if error.kind() == io::ErrorKind::AlreadyExists), "{exists}");
        // A symlink is not followed, even if nothing is at its end.
        std::os::unix::fs::symlink("nothing", temp.0.join("link")).unwrap();
        assert!(matches!(why(Token::create_file(&temp.0.join("link"))), TokenError::Io(_)));
        assert_eq!(fs::read(&one).unwrap(), before);
        assert!(!temp.0.join("nothing").exists());
    }
}

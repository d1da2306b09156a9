//! Who a host or a user is: an Ed25519 key pair.

use super::public_key::{PublicKey, signed_bytes};
use super::tls;
use crate::error::{Error, IdentityError, Result};
use crate::private_file::{self, FileError};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The longest file of a key pair.
const MAX_FILE_BYTES: usize = 4096;

/// A key pair by which a host or a user is known to others.
///
/// ```
/// use multirail_net::Identity;
///
/// let identity = Identity::generate();
/// let text = identity.public_key().to_string();
/// assert!(text.starts_with("ed25519:"));
/// assert_eq!(text.parse::<multirail_net::PublicKey>().unwrap(), identity.public_key());
/// ```
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    public: PublicKey,
    pair: Ed25519KeyPair,
    pkcs8: Vec<u8>,
    tls: tls::Configs,
}

impl Identity {
    /// A new key pair.
    ///
    /// # Panics
    ///
    /// If the kernel gives no random bytes.
    pub fn generate() -> Self {
        let der = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).expect("the kernel gives random bytes");
        Self::from_pkcs8(der.as_ref()).expect("a key that was just made is valid")
    }

    /// The key pair of this process, made when it is first asked for. It is the default of
    /// [`Config`](crate::Config): without a token, only ends in one process trust each other.
    pub fn of_process() -> Self {
        static OWN: OnceLock<Identity> = OnceLock::new();
        OWN.get_or_init(Self::generate).clone()
    }

    fn from_pkcs8(der: &[u8]) -> Result<Self, IdentityError> {
        let pair = Ed25519KeyPair::from_pkcs8(der).map_err(|_| IdentityError::PrivateKey)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| IdentityError::PrivateKey)?;
        let tls = tls::Configs::new(der).map_err(|_| IdentityError::PrivateKey)?;
        Ok(Self(Arc::new(Inner { public: PublicKey::from_bytes(public), pair, pkcs8: der.to_vec(), tls })))
    }

    /// Reads a key pair from a file that only its owner can read and write: PKCS #8 in PEM, as
    /// `openssl genpkey -algorithm ed25519` writes it.
    ///
    /// # Errors
    ///
    /// [`Error::IdentityFile`] if the file cannot be read, if its mode lets other users read or
    /// write it, or if it holds no Ed25519 key.
    pub fn from_file(path: &Path) -> Result<Self> {
        let read = private_file::read(path, MAX_FILE_BYTES).map_err(IdentityError::from);
        let identity = read.and_then(|pem| {
            let der = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| IdentityError::PrivateKey)?;
            Self::from_pkcs8(der.secret_pkcs8_der())
        });
        identity.map_err(|why| Error::IdentityFile { path: path.to_owned(), why })
    }

    /// Reads the key pair of this file; makes both if there is no file. The file and the directories
    /// that are made belong to the owner alone.
    ///
    /// # Errors
    ///
    /// Those of [`Identity::from_file`], or that the file cannot be made.
    pub fn load_or_create(path: &Path) -> Result<Self> {
        let failed = |why: IdentityError| Error::IdentityFile { path: path.to_owned(), why };
        if !path.try_exists().map_err(|e| failed(e.into()))? {
            use std::os::unix::fs::DirBuilderExt;
            if let Some(directory) = path.parent() {
                let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
                made.map_err(|e| failed(e.into()))?;
            }
            match private_file::create(path, Self::generate().to_pem().as_bytes()) {
                // Another process was faster.
                Err(FileError::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(|e| failed(e.into()))?,
            }
        }
        Self::from_file(path)
    }

    /// The PEM of the key pair.
    fn to_pem(&self) -> String {
        let text = data_encoding::BASE64.encode(&self.0.pkcs8);
        let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
    }

    /// Signs a message. The context says what the signature is for, so that it cannot be used for
    /// something else.
    pub fn sign(&self, context: &str, message: &[u8]) -> Vec<u8> {
        self.0.pair.sign(&signed_bytes(context, message)).as_ref().to_vec()
    }

    /// The public half.
    pub fn public_key(&self) -> PublicKey {
        self.0.public
    }

    pub(crate) fn tls(&self) -> &tls::Configs {
        &self.0.tls
    }
}

impl From<FileError> for IdentityError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Shared { mode } => Self::Shared { mode },
            FileError::Io(error) => Self::Io(error),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.0.public).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// A temporary directory that is removed when this is dropped.
    struct Temp(std::path::PathBuf);

    impl Temp {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("multirail-identity-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn many_that_come_at_once_make_one_key_pair() {
        let temp = Temp::new("many");
        let file = temp.0.join("config/multirail/id");
        let made: Vec<PublicKey> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..16).map(|_| scope.spawn(|| Identity::load_or_create(&file).unwrap().public_key())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|key| *key == made[0]), "{made:?}");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn files_that_are_no_private_key_pair_are_refused() {
        let temp = Temp::new("refused");
        let file = temp.0.join("id");
        let refused = |expected: &str| {
            let error = Identity::load_or_create(&file).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("/id"), "{error}");
        };
        fs::write(&file, "nothing").unwrap();
        refused("its mode is 0644");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        refused("no Ed25519 key pair");
        fs::write(&file, Identity::generate().to_pem()).unwrap();
        Identity::load_or_create(&file).unwrap();
    }

    #[test]
    fn a_public_key_has_one_text() {
        let key = Identity::generate().public_key();
        assert_eq!(key.to_string().parse::<PublicKey>().unwrap(), key);
        for bad in ["", "ed25519:", "rsa:AAAA", &key.to_string()[..50], &format!("{key}A")] {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
        }
    }
}

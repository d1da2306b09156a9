//! The cipher of a session, and how keys are made of secrets.

use aws_lc_rs::hkdf::{KeyType, Prk};

/// Bytes of a secret and of a proof.
pub(crate) const SECRET_BYTES: usize = 32;

/// How records are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cipher {
    /// AES-128-GCM, where both hosts have AES instructions.
    Aes128Gcm,
    /// ChaCha20-Poly1305, elsewhere.
    ChaCha20Poly1305,
}

impl Cipher {
    /// Whether this host has AES instructions.
    pub(crate) fn has_fast_aes() -> bool {
        #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
        return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        return std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
        return false;
    }

    /// The cipher of two hosts.
    pub(crate) fn choose(both_have_fast_aes: bool) -> Self {
        if both_have_fast_aes { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }
}

/// The number of bytes that HKDF makes.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// `N` bytes of HKDF's output for `info`.
pub(crate) fn expand<const N: usize>(secret: &Prk, info: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    let filled = secret.expand(info, Length(N)).and_then(|output| output.fill(&mut bytes));
    filled.expect("the length is far below HKDF's limit");
    bytes
}

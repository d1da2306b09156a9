//! A limit on the memory that requests of peers may use.

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of memory that requests may use together. Clones share the same bytes.
///
/// ```
/// use multirail_net::budget::MemoryBudget;
///
/// let budget = MemoryBudget::new(1000);
/// let claim = budget.claim(800)?;
/// assert_eq!(budget.used_bytes(), 800);
/// assert!(budget.claim(300).is_err());
/// drop(claim);
/// assert!(budget.claim(300).is_ok());
/// # Ok::<(), multirail_net::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    limit_bytes: u64,
    left_bytes: Arc<AtomicU64>,
}

/// A part of a budget. Dropping it returns its bytes.
#[derive(Debug)]
pub struct MemoryClaim {
    bytes: u64,
    left_bytes: Arc<AtomicU64>,
}

impl MemoryBudget {
    /// The budget of a server of which nothing else is said: 1 GiB.
    pub const DEFAULT_BYTES: u64 = 1 << 30;

    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, left_bytes: Arc::new(AtomicU64::new(limit_bytes)) }
    }

    /// The limit, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The bytes that are in use.
    pub fn used_bytes(&self) -> u64 {
        self.limit_bytes - self.left_bytes.load(Ordering::Relaxed)
    }

    /// Takes `bytes` from the budget.
    ///
    /// # Errors
    ///
    /// [`Error::OverMemoryBudget`] if fewer bytes are left.
    pub fn claim(&self, bytes: u64) -> Result<MemoryClaim> {
        let taken = self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        match taken {
            Ok(_) => Ok(MemoryClaim { bytes, left_bytes: self.left_bytes.clone() }),
            Err(left_bytes) => {
                Err(Error::OverMemoryBudget { wanted_bytes: bytes, left_bytes, limit_bytes: self.limit_bytes })
            }
        }
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(Self::DEFAULT_BYTES)
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        self.left_bytes.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

//! Random bytes of the kernel.

/// As many as the type has.
///
/// # Panics
///
/// If the kernel gives none.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

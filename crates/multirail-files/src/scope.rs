//! Which paths clients can name.

use std::path::PathBuf;

/// Which paths clients can name.
#[derive(Debug)]
pub(crate) enum Scope {
    /// Those below this folder.
    Below(PathBuf),
    /// Those that the user of this process can name: relative to its working directory, or
    /// absolute.
    User,
}

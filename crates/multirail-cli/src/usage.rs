//! Errors in the command line or in a file that it names. Their exit code is 2.

use std::fmt;

/// A usage error. As the error of a command, it sets the exit code to 2.
#[derive(Debug)]
pub struct Usage(String);

impl Usage {
    /// A usage error with the text of another error and its causes, for `map_err`.
    pub fn of(error: impl fmt::Display) -> anyhow::Error {
        Usage(format!("{error:#}")).into()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

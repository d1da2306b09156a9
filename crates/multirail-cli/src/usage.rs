//! The command line, or a file that it names, was wrong: exit code 2.

use std::fmt;

/// What is wrong. As the error of a command it makes the exit code 2.
#[derive(Debug)]
pub struct Usage(String);

impl Usage {
    /// For `map_err`.
    pub fn of(error: impl fmt::Display) -> anyhow::Error {
        Usage(error.to_string()).into()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

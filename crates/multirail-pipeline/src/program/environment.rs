//! The environment of a program.
//!
//! A server's environment can have secrets that the clients who name programs must not see, and a
//! program should do the same on every host. So it inherits a few variables only.

use crate::runtime::{CopyInfo, Failure, UnitOfWork};
use std::collections::BTreeMap;
use std::process::Command;

/// The variables that a program inherits.
pub(super) const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// The variables that the description of a filter sets, by name.
#[derive(Debug, Default)]
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(super) fn new(named: BTreeMap<String, String>) -> Result<Self, Failure> {
        for (name, value) in &named {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let valid = "a name has at least one character and no `=`, and no text has a NUL";
                return Err(format!("its parameter \"env\" has {name:?} = {value:?}; {valid}").into());
            }
        }
        Ok(Self(named))
    }

    /// Gives `process` the inherited variables, then those of the description, then those that say
    /// which copy and which unit of work it is.
    pub(super) fn apply(&self, process: &mut Command, info: &CopyInfo, unit: &UnitOfWork) {
        process.env_clear();
        process.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        process.envs(&self.0);
        process
            .env("MULTIRAIL_FILTER", &info.filter)
            .env("MULTIRAIL_COPY", info.copy.to_string())
            .env("MULTIRAIL_COPIES", info.copies.to_string())
            .env("MULTIRAIL_CHUNK_BYTES", info.chunk_bytes.to_string())
            .env("MULTIRAIL_LIMIT_BYTES", info.limit_bytes.to_string())
            .env("MULTIRAIL_UNIT", unit.number.to_string());
        match std::str::from_utf8(&unit.query) {
            Ok(query) if !query.contains('\0') => process.env("MULTIRAIL_QUERY", query),
            _ => process.env_remove("MULTIRAIL_QUERY"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_that_no_process_can_have_are_refused() {
        let refused = |name: &str, value: &str| Environment::new([(name.to_owned(), value.to_owned())].into()).is_err();
        assert!(!refused("A", "") && !refused("a.b", "c=d"));
        assert!(refused("", "x") && refused("A=B", "x") && refused("A\0", "x") && refused("A", "\0"));
    }
}

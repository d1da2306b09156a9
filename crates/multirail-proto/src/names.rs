//! The error for an unknown name: one type for all enums that users choose by name.
//!
//! An enum derives `strum`'s `EnumString`, `VariantNames`, `Display` and `IntoStaticStr`, and
//! passes a function that calls [`UnknownName::new`] as `parse_err_fn`. `Strategy` shows how.

use std::fmt;

/// A name that no variant of an enum has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    kind: &'static str,
    given: String,
    known: &'static [&'static str],
}

impl UnknownName {
    /// The error for `given`. `kind` says what was named ("strategy"), `known` lists all names.
    pub fn new(kind: &'static str, given: &str, known: &'static [&'static str]) -> Self {
        Self { kind, given: given.to_owned(), known }
    }

    /// What was named, for example "strategy".
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The given name.
    pub fn given(&self) -> &str {
        &self.given
    }

    /// The names that exist.
    pub fn known(&self) -> &'static [&'static str] {
        self.known
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} `{}`; expected ", self.kind, self.given)?;
        match self.known {
            [] => f.write_str("nothing"),
            [only] => f.write_str(only),
            [first @ .., last] => write!(f, "one of {} or {last}", first.join(", ")),
        }
    }
}

impl std::error::Error for UnknownName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_lists_the_names_that_exist() {
        let text = |known: &'static [&'static str]| UnknownName::new("fruit", "fig", known).to_string();
        assert_eq!(text(&["apple"]), "unknown fruit `fig`; expected apple");
        assert_eq!(text(&["apple", "pear", "plum"]), "unknown fruit `fig`; expected one of apple, pear or plum");
    }

    #[test]
    fn strategies_and_methods_have_names() {
        use crate::multicast::Method;
        use crate::striping::Strategy;
        assert!(Strategy::ALL.iter().all(|s| s.name().parse() == Ok(*s) && s.to_string() == s.name()));
        assert!(Method::ALL.iter().all(|m| m.name().parse() == Ok(*m) && m.to_string() == m.name()));
        assert_eq!("two-ended".parse(), Ok(Strategy::TwoEnded));
        assert_eq!(
            "best".parse::<Strategy>().unwrap_err().to_string(),
            "unknown strategy `best`; expected one of single, equal-partition, shared-counter, two-ended or adaptive"
        );
        assert_eq!(Method::default(), Method::ALL[0]);
    }
}

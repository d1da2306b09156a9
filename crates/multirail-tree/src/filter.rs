//! Rules that leave entries of a tree out, as those of `rsync`.
//!
//! The first rule whose pattern matches decides; what no rule matches is copied. In a pattern, `*`
//! matches any bytes but a slash, `**` also slashes, `?` one byte but a slash, and `[a-z]` one of a
//! class. A slash at the end restricts a pattern to directories. A slash at the start binds it to the
//! start of the path, which begins with the source's name, or below it if the source was written with
//! a slash at its end. A pattern with another slash is compared with the end of the path, and one
//! without with the last name. What is in an excluded directory is excluded, too.

use crate::names::CONTENT_ONLY;
use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most rules of a copy.
pub const MAX_RULES: usize = 1000;
/// The length of all patterns of a copy together, in bytes.
pub const MAX_PATTERNS_BYTES: usize = 32 << 10;

/// A rule as its user wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Whether what matches is copied.
    pub include: bool,
    /// The pattern.
    pub pattern: String,
}

/// Rules that can be asked.
#[derive(Debug)]
pub struct Filter {
    rules: Vec<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    include: bool,
    only_directories: bool,
    /// Whether the pattern is compared with the last name only.
    only_name: bool,
    pattern: GlobMatcher,
}

impl Filter {
    /// Prepares the rules; `None` without rules.
    ///
    /// # Errors
    ///
    /// In words, which pattern is not valid, or that there are more than [`MAX_RULES`] or
    /// [`MAX_PATTERNS_BYTES`].
    pub fn new(rules: &[Rule]) -> Result<Option<Filter>, String> {
        let pattern_bytes: usize = rules.iter().map(|rule| rule.pattern.len()).sum();
        if rules.len() > MAX_RULES || pattern_bytes > MAX_PATTERNS_BYTES {
            return Err(format!(
                "more than {MAX_RULES} rules, or {MAX_PATTERNS_BYTES} bytes of them, for what to copy"
            ));
        }
        let rules: Vec<Compiled> = rules.iter().map(Compiled::new).collect::<Result<_, _>>()?;
        Ok((!rules.is_empty()).then_some(Filter { rules }))
    }

    /// Whether the entry with the path `wire` is left out ([`crate::names::WirePath`]).
    pub fn excludes(&self, wire: &[u8], is_dir: bool) -> bool {
        let path = match wire.strip_prefix(CONTENT_ONLY.as_bytes()) {
            Some([b'/', rest @ ..]) => rest,
            Some([]) => return false,
            _ => wire,
        };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let matches = |rule: &&Compiled| {
            let text = if rule.only_name { name } else { path };
            (is_dir || !rule.only_directories) && rule.pattern.is_match(Path::new(OsStr::from_bytes(text)))
        };
        self.rules.iter().find(matches).is_some_and(|rule| !rule.include)
    }
}

impl Compiled {
    fn new(rule: &Rule) -> Result<Self, String> {
        let whole = &rule.pattern;
        let (pattern, only_directories) = match whole.strip_suffix('/') {
            Some(pattern) => (pattern, true),
            None => (whole.as_str(), false),
        };
        if pattern.is_empty() {
            return Err(format!("the pattern {whole:?} is empty"));
        }
        let (glob, only_name) = match pattern.strip_prefix('/') {
            Some(anchored) => (plain_braces(anchored), false),
            None if !pattern.contains('/') && !pattern.contains("**") => (plain_braces(pattern), true),
            None => (format!("**/{}", plain_braces(pattern)), false),
        };
        let glob = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
        let glob = glob.map_err(|error| format!("the pattern {whole:?} is not valid: {}", error.kind()))?;
        Ok(Self { include: rule.include, only_directories, only_name, pattern: glob.compile_matcher() })
    }
}

/// Takes the special meaning from braces, which have none for `rsync`.
fn plain_braces(pattern: &str) -> String {
    let (mut plain, mut in_class, mut escaped) = (String::with_capacity(pattern.len()), false, false);
    for character in pattern.chars() {
        match character {
            '{' | '}' if !in_class && !escaped => plain.extend(['[', character, ']']),
            _ => plain.push(character),
        }
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let rule = |text: &&str| Rule { include: text.starts_with('+'), pattern: text[1..].to_owned() };
        Filter::new(&rules.iter().map(rule).collect::<Vec<_>>()).unwrap().unwrap()
    }

    /// The expectations are those of rsync 3.2 for `rsync -a --exclude ... src .`.
    #[test]
    fn the_first_rule_that_matches_decides() {
        for (rules, path, is_dir, excluded) in [
            (&["-*.o"][..], "src/a.o", false, true),
            (&["-*.o"], "src/a/b.o", false, true),
            (&["-*.o"], "src/a.c", false, false),
            (&["+keep.o", "-*.o"], "src/keep.o", false, false),
            (&["-*.o", "+keep.o"], "src/keep.o", false, true),
            (&["-/src/a"], "src/a", false, true),
            (&["-/src/a"], "src/b/src/a", false, false),
            (&["-/a"], "src/a", false, false),
            (&["-/a"], "./a", false, true),
            (&["-/a"], "./b/a", false, false),
            (&["-b/a"], "src/b/a", false, true),
            (&["-b/a"], "src/xb/a", false, false),
            (&["-b/*"], "src/b/c", true, true),
            (&["-b/*"], "src/b/c/d", false, false),
            (&["-b/**"], "src/b/c/d", false, true),
            (&["-cache/"], "src/cache", true, true),
            (&["-cache/"], "src/cache", false, false),
            (&["-a?c"], "src/abc", false, true),
            (&["-a?c"], "src/ac", false, false),
            (&["-[a-c]x"], "src/bx", false, true),
            (&["-{a,b}"], "src/a", false, false),
            (&["-{a,b}"], "src/{a,b}", false, true),
            (&["-*"], ".", true, false),
            (&["-.*"], "./.hidden", false, true),
        ] {
            assert_eq!(filter(rules).excludes(path.as_bytes(), is_dir), excluded, "{rules:?} {path}");
        }
    }

    #[test]
    fn names_of_any_bytes_are_compared() {
        assert!(filter(&["-*.o"]).excludes(b"src/\xff\xfe.o", false));
    }

    #[test]
    fn wrong_and_too_many_rules_are_refused() {
        let rule = |pattern: &str| Rule { include: false, pattern: pattern.to_owned() };
        for pattern in ["", "/", "a[", &"x".repeat(MAX_PATTERNS_BYTES + 1)] {
            assert!(Filter::new(&[rule(pattern)]).is_err(), "{pattern}");
        }
        assert!(Filter::new(&vec![rule("a"); MAX_RULES + 1]).is_err());
        assert!(Filter::new(&vec![rule("a"); MAX_RULES]).unwrap().is_some());
        assert!(Filter::new(&[]).unwrap().is_none());
    }
}

//! What a client may do, and the text of a line in a file of authorized keys that says so.
//!
//! A server looks the permissions up once, when a client has proven its key. They travel with the
//! session ([`Session::client`](crate::Session::client)), and each handler checks its own.

use crate::quota::{Quota, Reservation};
use crate::rate_limit::RateLimit;
use multirail_proto::units::{parse_bytes_s, parse_size};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The options, for errors.
const OPTIONS: &str = "root=DIR, ro, wo, programs, forward, quota=SIZE and rate=RATE";

/// What a client may do. The default is everything.
#[derive(Debug, Clone)]
pub struct Permissions {
    below: PathBuf,
    read: bool,
    write: bool,
    programs: bool,
    forward: bool,
    quota: Option<Quota>,
    rate_limit: Option<RateLimit>,
}

/// Something that a client may do or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Right {
    /// Learn names and contents of files.
    Read,
    /// Create, change and delete files.
    Write,
    /// Start programs, if the server does that at all.
    Programs,
    /// Reach targets through the server, if the server forwards connections at all.
    Forward,
}

impl Permissions {
    /// The folder that the client sees, below the served one. Empty: the served one.
    pub fn below(&self) -> &Path {
        &self.below
    }

    /// Whether the client has this right.
    pub fn has(&self, right: Right) -> bool {
        match right {
            Right::Read => self.read,
            Right::Write => self.write,
            Right::Programs => self.programs,
            Right::Forward => self.forward,
        }
    }

    /// Fails unless the client has this right.
    ///
    /// # Errors
    ///
    /// In words, for the client.
    pub fn check(&self, right: Right) -> Result<(), String> {
        if self.has(right) {
            return Ok(());
        }
        let what = match right {
            Right::Read => "the server lets this key write and not read",
            Right::Write => "the server lets this key read and not write",
            Right::Programs => "the server lets this key run no programs",
            Right::Forward => "the server forwards no connections for this key",
        };
        Err(what.to_owned())
    }

    /// The limit of what the client may store; `None` if there is none.
    pub fn quota(&self) -> Option<&Quota> {
        self.quota.as_ref()
    }

    /// The limit of the rate of all sessions that the client opens; `None` if there is none.
    pub fn rate_limit(&self) -> Option<&RateLimit> {
        self.rate_limit.as_ref()
    }

    /// Reserves room for entries that are about to be stored.
    ///
    /// # Errors
    ///
    /// Those of [`Quota::reserve`].
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, String> {
        self.quota.as_ref().map_or(Ok(Reservation::default()), |quota| quota.reserve(bytes))
    }

    /// As these, with what the sessions of the same key under `old` have used.
    pub(crate) fn counting_with(mut self, old: &Quota) -> Self {
        self.quota = self.quota.map(|quota| quota.counting_with(old));
        self
    }
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            below: PathBuf::new(),
            read: true,
            write: true,
            programs: true,
            forward: true,
            quota: None,
            rate_limit: None,
        }
    }
}

/// Reads the options of a line: `root=DIR,ro,wo,programs,forward,quota=SIZE,rate=RATE`. A value in quotes may have
/// spaces and commas, and `\"` for a quote.
impl FromStr for Permissions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut permissions = Self { programs: false, forward: false, ..Self::default() };
        let mut seen: Vec<String> = Vec::new();
        for option in split(text)? {
            let (name, value) = option.split_once('=').map_or((option.as_str(), None), |(n, v)| (n, Some(v)));
            if seen.iter().any(|seen| seen == name) {
                return Err(format!("`{name}` is there twice"));
            }
            match (name, value) {
                ("root", Some(folder)) => permissions.below = below(folder)?,
                ("quota", Some(size)) => {
                    let bytes = parse_size(size).map_err(|error| format!("quota: {error}"))?;
                    permissions.quota = Some(Quota::new(bytes));
                }
                ("rate", Some(rate)) => {
                    let bytes_s = parse_bytes_s(rate).map_err(|error| format!("rate: {error}"))?;
                    permissions.rate_limit = Some(RateLimit::new(Some(bytes_s)));
                }
                ("root" | "quota" | "rate", None) => return Err(format!("`{name}` has no value; write {name}=VALUE")),
                ("ro", None) => permissions.write = false,
                ("wo", None) => permissions.read = false,
                ("programs", None) => permissions.programs = true,
                ("forward", None) => permissions.forward = true,
                ("ro" | "wo" | "programs" | "forward", Some(_)) => return Err(format!("`{name}` has no value")),
                _ => return Err(format!("`{name}` is no option; the options are {OPTIONS}")),
            }
            seen.push(name.to_owned());
        }
        if !permissions.read && !permissions.write {
            return Err("`ro` and `wo` together allow nothing; remove the line, or one of them".to_owned());
        }
        Ok(permissions)
    }
}

/// The folder of `root=`: relative to the served one, and not out of it.
fn below(folder: &str) -> Result<PathBuf, String> {
    let path = Path::new(folder);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if folder.is_empty() || folder.contains('\0') || !is_plain {
        return Err(format!(
            "root={folder}: write the path of a folder below the one that is served, without `/` at the beginning, \
             and without `.` and `..`"
        ));
    }
    Ok(path.to_owned())
}

/// The options, without their quotes.
fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut options, mut option, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if quoted && letters.peek() == Some(&'"') => option.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => options.push(std::mem::take(&mut option)),
            _ => option.push(letter),
        }
    }
    if quoted {
        return Err("a quotation mark is open at the end".to_owned());
    }
    options.push(option);
    match options.iter().any(String::is_empty) {
        true => Err(format!("an option is empty; the options are {OPTIONS}")),
        false => Ok(options),
    }
}

/// Splits a line behind its options: at the first white space that is not in quotes.
pub(crate) fn split_options(line: &str) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    let end = line.find(|letter: char| {
        let is_quote = letter == '"' && !(quoted && escaped);
        escaped = letter == '\\';
        quoted ^= is_quote;
        letter.is_whitespace() && !quoted
    });
    let (options, rest) = line.split_at(end.unwrap_or(line.len()));
    (options, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Permissions {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn each_option_means_one_thing() {
        let rights = |text: &str| {
            let it = parse(text);
            (it.has(Right::Read), it.has(Right::Write), it.has(Right::Programs))
        };
        assert_eq!(rights("ro"), (true, false, false));
        assert_eq!(rights("wo"), (false, true, false));
        assert_eq!(rights("programs"), (true, true, true));
        assert_eq!(rights("root=a"), (true, true, false), "a key with options needs `programs`");
        let forwards = |text: &str| parse(text).has(Right::Forward);
        assert!(forwards("ro,forward") && !forwards("ro") && !forwards("programs"), "as with `programs`");
        assert_eq!(parse("root=a/b,ro").below(), Path::new("a/b"));
        assert_eq!(
            parse(r#"ro,root="with a space, a comma and \"""#).below(),
            Path::new("with a space, a comma and \"")
        );
        assert_eq!(parse("quota=2m").quota().unwrap().limit_bytes(), 2 << 20);
        assert_eq!(parse("rate=80mbit").rate_limit().unwrap().bytes_s(), Some(10_000_000));
        let all = Permissions::default();
        assert!([Right::Read, Right::Write, Right::Programs, Right::Forward].iter().all(|right| all.has(*right)));
        assert!(all.below().as_os_str().is_empty() && all.quota().is_none() && all.rate_limit().is_none());
        all.reserve(u64::MAX).unwrap();
    }

    #[test]
    fn bad_options_are_refused_with_what_is_allowed() {
        for (bad, why) in [
            ("rw", "`rw` is no option; the options are root=DIR, ro, wo, programs, forward, quota=SIZE and rate=RATE"),
            ("forwards", "`forwards` is no option"),
            ("RO", "`RO` is no option"),
            ("ro,wo", "allow nothing"),
            ("wo,root=a,ro", "allow nothing"),
            ("ro,ro", "twice"),
            ("ro,", "empty"),
            ("", "empty"),
            ("ro=1", "no value"),
            ("root", "root=VALUE"),
            ("root=", "without `.` and `..`"),
            ("root=/etc", "without `/` at the beginning"),
            ("root=a/../..", "without `.` and `..`"),
            ("root=..", "without `.` and `..`"),
            ("root=./a", "without `.` and `..`"),
            ("quota=many", "`many` is not a size"),
            ("quota=-1", "is not a size"),
            ("rate=0", "`0` is not a rate"),
            ("rate", "rate=VALUE"),
            ("root=\"a", "quotation mark"),
        ] {
            let error = bad.parse::<Permissions>().unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn options_end_at_white_space_outside_of_quotes() {
        assert_eq!(split_options(r#"ro,root="a b" key name"#), (r#"ro,root="a b""#, "key name"));
        assert_eq!(split_options(r#"root="a \" b"  key"#), (r#"root="a \" b""#, "key"));
        assert_eq!(split_options("ro"), ("ro", ""));
    }

    proptest! {
        /// No text makes the reader panic, and what it takes for a folder is below the served one.
        #[test]
        fn any_text_is_read_or_refused(text in "(root=|ro|wo|,|\"|\\\\|/|\\.\\.|quota=|[a-z ]|\\PC){0,12}") {
            let (options, rest) = split_options(&text);
            prop_assert!(text.starts_with(options) && text.ends_with(rest));
            if let Ok(permissions) = text.parse::<Permissions>() {
                let below = permissions.below();
                prop_assert!(below.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(permissions.has(Right::Read) || permissions.has(Right::Write));
            }
        }
    }
}

//! What a copy is asked for: the sources and the destination as they are written.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A source or the destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CopyLocation {
    Local(PathBuf),
    Remote { host: Host, path: PathBuf },
}

/// Where the other end of a copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// A server that runs: `HOST[:PORT]`.
    Server(String),
    /// A host of ssh, where a server is started: `[USER@]HOST`.
    Login(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Server(address) => write!(f, "mr://{address}"),
            Host::Login(login) => f.write_str(login),
        }
    }
}

/// A valid copy: all sources on one host, the destination on the other.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) host: Host,
    pub(super) upload: bool,
    pub(super) sources: Vec<PathBuf>,
    pub(super) destination: PathBuf,
}

impl Job {
    pub(super) fn new(mut locations: Vec<CopyLocation>) -> anyhow::Result<Job> {
        let last = locations.pop().filter(|_| !locations.is_empty());
        let Some(last) = last else { anyhow::bail!("give at least one SRC and a DEST") };
        match last {
            CopyLocation::Remote { host, path: destination } => {
                let sources = locations.into_iter().map(|location| match location {
                    CopyLocation::Local(path) => Ok(path),
                    CopyLocation::Remote { host: from, .. } => Err(anyhow::anyhow!(
                        "{from} and {host} are both remote; copy to this host first, or run cp on one of these hosts"
                    )),
                });
                Ok(Job { sources: sources.collect::<anyhow::Result<_>>()?, host, upload: true, destination })
            }
            CopyLocation::Local(destination) => {
                let mut from: Option<Host> = None;
                let mut sources = Vec::new();
                for location in locations {
                    let CopyLocation::Remote { host, path } = location else { return Err(neither_is_remote()) };
                    if let Some(other) = from.as_ref().filter(|other| **other != host) {
                        anyhow::bail!("the sources are on two hosts, {other} and {host}; copy from one host at a time");
                    }
                    from = Some(host);
                    sources.push(path);
                }
                let host = from.ok_or_else(neither_is_remote)?;
                Ok(Job { host, upload: false, sources, destination })
            }
        }
    }
}

fn neither_is_remote() -> anyhow::Error {
    anyhow::anyhow!(
        "neither end is remote: one must be [USER@]HOST:PATH or mr://HOST[:PORT]/PATH; use cp to copy locally"
    )
}

pub(super) fn location_parser() -> impl TypedValueParser<Value = CopyLocation> {
    OsStringValueParser::new().try_map(|text| parse_location(&text))
}

fn parse_location(text: &OsStr) -> Result<CopyLocation, String> {
    const FORM: &str = "write mr://HOST[:PORT]/PATH, an IPv6 address in brackets";
    let Some(rest) = text.as_bytes().strip_prefix(b"mr://") else {
        return match text.as_bytes() {
            b"" => Err("the path is empty".to_owned()),
            t if t.starts_with(b"mr:") => Err(format!("{FORM}; for a local file of that name, ./{}", text.display())),
            t => parse_login(t),
        };
    };
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let host = std::str::from_utf8(&rest[..slash]).map_err(|_| format!("the host is not UTF-8; {FORM}"))?;
    let path = OsString::from(OsStr::from_bytes(rest.get(slash + 1..).unwrap_or_default()));
    check_host(host).map_err(|why| format!("{why}; {FORM}"))?;
    Ok(CopyLocation::Remote { host: Host::Server(host.to_owned()), path: PathBuf::from(path) })
}

/// A path of this host, or `[USER@]HOST:PATH`, told apart as `scp` does: a colon before the first
/// slash is the end of a host, unless it is the first character.
fn parse_login(text: &[u8]) -> Result<CopyLocation, String> {
    let local = || Ok(CopyLocation::Local(PathBuf::from(OsStr::from_bytes(text))));
    let slash = text.iter().position(|b| *b == b'/').unwrap_or(text.len());
    let head = &text[..slash];
    // The colons of an IPv6 address are within brackets.
    let from = match (head.iter().position(|b| *b == b'['), head.iter().position(|b| *b == b']')) {
        (Some(open), Some(close)) if open < close && (open == 0 || head[open - 1] == b'@') => close,
        _ => 0,
    };
    let Some(colon) = head[from..].iter().position(|b| *b == b':').map(|at| from + at).filter(|at| *at > 0) else {
        return local();
    };
    let form = || {
        format!(
            "write [USER@]HOST:PATH, an IPv6 address in brackets; for a local file of that name, ./{}",
            String::from_utf8_lossy(text)
        )
    };
    let (login, path) = (&text[..colon], &text[colon + 1..]);
    let login = std::str::from_utf8(login).map_err(|_| format!("the host is not UTF-8; {}", form()))?;
    let login = check_login(login).map_err(|why| format!("{why}; {}", form()))?;
    if path.starts_with(b":") {
        return Err(format!("there are two colons, as for a server of rsync; {}", form()));
    }
    Ok(CopyLocation::Remote { host: Host::Login(login), path: from_home(path)? })
}

/// The login without the brackets around an address, as ssh takes it. A login that ssh could take
/// for an option is refused.
fn check_login(login: &str) -> Result<String, String> {
    let (user, host) = login.rsplit_once('@').map_or((None, login), |(user, host)| (Some(user), host));
    let host = match host.strip_prefix('[') {
        None => host,
        Some(rest) => {
            let address = rest.strip_suffix(']').ok_or("there is text between the bracket and the colon")?;
            // An address may name the interface that it belongs to.
            let number = address.split('%').next().unwrap_or_default();
            number.parse::<std::net::Ipv6Addr>().map_err(|_| format!("[{address}] is not an IPv6 address"))?;
            address
        }
    };
    for (part, name) in [(user.unwrap_or("u"), "user"), (host, "host")] {
        match part {
            "" => return Err(format!("the {name} is missing")),
            _ if part.starts_with('-') => return Err(format!("the {name} begins with `-`")),
            _ if part.contains(|c: char| c.is_control() || c.is_whitespace()) => {
                return Err(format!("the {name} has white space or control characters"));
            }
            _ => {}
        }
    }
    Ok(user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}")))
}

/// A path of a login, which begins at the home if it is not absolute.
fn from_home(path: &[u8]) -> Result<PathBuf, String> {
    let path = match path {
        b"" | b"~" => b".",
        [b'~', b'/', rest @ ..] => match rest.iter().position(|b| *b != b'/') {
            Some(start) => &rest[start..],
            None => b"./",
        },
        [b'~', ..] => {
            let shown = String::from_utf8_lossy(path);
            return Err(format!(
                "the home of another user is not found by `~`; write its path, or ./{shown} for that name"
            ));
        }
        path => path,
    };
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

fn check_host(host: &str) -> Result<(), String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or("a bracket is not closed")?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| format!("[{address}] is not an IPv6 address"))?;
            match port {
                "" => (address, None),
                port => {
                    (address, Some(port.strip_prefix(':').ok_or("there is text between the bracket and the port")?))
                }
            }
        }
        None if host.matches(':').count() > 1 => return Err(format!("{host} has more than one colon")),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    match port.map(str::parse::<u16>) {
        _ if name.is_empty() => Err("the host is missing".to_owned()),
        Some(Err(_) | Ok(0)) => Err(format!("{} is not a port", port.unwrap_or_default())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let remote = |host: &str, path: &str| {
            Ok(CopyLocation::Remote { host: Host::Server(host.to_owned()), path: path.into() })
        };
        let parse = |text: &str| parse_location(OsStr::new(text));
        assert_eq!(parse("mr://node2/a/b c"), remote("node2", "a/b c"));
        assert_eq!(parse("mr://node2:99/"), remote("node2:99", ""));
        assert_eq!(parse("mr://node2"), remote("node2", ""));
        assert_eq!(parse("mr://[fd00::1]:99/x"), remote("[fd00::1]:99", "x"));
        assert_eq!(parse("mr://[::1]/x"), remote("[::1]", "x"));
        assert_eq!(parse("mr://node2//etc"), remote("node2", "/etc"), "the server refuses it");
        assert_eq!(parse("./mr:x"), Ok(CopyLocation::Local("./mr:x".into())));
        for bad in [
            "",
            "mr:x",
            "mr:/x",
            "mr:///x",
            "mr://:99/x",
            "mr://a:x/b",
            "mr://a:70000/b",
            "mr://fd00::1/x",
            "mr://[fd00::1/x",
            "mr://[a]/x",
            "mr://[::1]99/x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_of_ssh() {
        let parse = |text: &str| parse_location(OsStr::new(text));
        let login = |login: &str, path: &str| {
            Ok(CopyLocation::Remote { host: Host::Login(login.to_owned()), path: path.into() })
        };
        assert_eq!(parse("node2:/a/b c"), login("node2", "/a/b c"));
        assert_eq!(parse("me@node2:a:b"), login("me@node2", "a:b"));
        assert_eq!(parse("me@corp@node2:x/"), login("me@corp@node2", "x/"));
        assert_eq!(parse("[fd00::1]:/x"), login("fd00::1", "/x"));
        assert_eq!(parse("me@[fe80::1%eth0]:x"), login("me@fe80::1%eth0", "x"));
        assert_eq!(parse("h:it's \n$x"), login("h", "it's \n$x"));
        for (path, from_home) in
            [("", "."), ("~", "."), ("~/", "./"), ("~/a/", "a/"), ("~//a", "a"), ("./~a", "./~a"), ("a/~", "a/~")]
        {
            assert_eq!(parse(&format!("h:{path}")), login("h", from_home), "{path}");
        }
        for local in ["a", "./h:x", "/h:x", "a/b:c", ":x", "a[b", "[a]", "a]b"] {
            assert_eq!(parse(local), Ok(CopyLocation::Local(local.into())));
        }
        for (bad, why) in [
            ("h::x", "two colons"),
            ("-oProxyCommand=x:y", "begins with `-`"),
            ("me@-x:y", "begins with `-`"),
            ("-me@h:y", "begins with `-`"),
            ("@h:y", "the user is missing"),
            ("me@:y", "the host is missing"),
            ("a b:y", "white space"),
            ("[::1]x:y", "between the bracket"),
            ("[x]:y", "not an IPv6 address"),
            ("h:~root/x", "another user"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn jobs() {
        let job = |places: &[&str]| Job::new(places.iter().map(|p| parse_location(OsStr::new(p)).unwrap()).collect());
        assert!(job(&["a", "mr://h/b"]).unwrap().upload);
        assert!(!job(&["mr://h/a", "mr://h/c", "b"]).unwrap().upload);
        assert!(job(&["a", "h:b"]).unwrap().upload && !job(&["me@h:a", "me@h:c", "b"]).unwrap().upload);
        for (places, why) in [
            (&["mr://h/a", "mr://g/b"][..], "both remote"),
            (&["mr://h/a", "mr://g/b", "c"], "two hosts"),
            (&["h:a", "mr://h/b", "c"], "two hosts, h and mr://h;"),
            (&["me@h:a", "h:b", "c"], "two hosts, me@h and h;"),
            (&["h:a", "g:b"], "both remote"),
            (&["a", "b"], "neither end"),
            (&["mr://h/a", "b", "c"], "neither end"),
        ] {
            assert!(job(places).err().unwrap().to_string().contains(why), "{places:?}");
        }
    }
}

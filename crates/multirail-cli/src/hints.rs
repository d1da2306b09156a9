//! Hints: one more line below an error that says what to do.
//!
//! Library errors are typed and name no command or option of this program. [`hint_of`] translates
//! them. A command adds a hint to an error of its own with [`error_with_hint`].

use multirail::TokenError;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// The files of keys, as users know them.
const AUTHORIZED: &str = "~/.config/multirail/authorized_keys";
const KNOWN: &str = "~/.config/multirail/known_hosts";

/// An error of a command, with a hint.
#[derive(Debug)]
struct HintedError {
    message: String,
    hint: String,
}

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HintedError {}

/// An error of a command, with the hint that is printed below it.
pub fn error_with_hint(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    HintedError { message: message.into(), hint: hint.into() }.into()
}

/// The hint for an error, from the first error of its chain that has one.
pub fn hint_of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let own = cause.downcast_ref::<HintedError>().map(|hinted| hinted.hint.clone());
        own.or_else(|| lab(cause.downcast_ref()?))
            .or_else(|| session(session_error(cause)?))
            .or_else(|| secret(cause.downcast_ref()?))
            .or_else(|| placement(cause.downcast_ref()?))
    })
}

/// The session's error in `cause`. A copy forwards it with its own text.
fn session_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a multirail::Error> {
    cause.downcast_ref().or_else(|| match cause.downcast_ref()? {
        multirail::files::CopyError::Session(error) => Some(error),
        _ => None,
    })
}

/// The hint for an error of a test network.
fn lab(error: &multirail_lab::Error) -> Option<String> {
    use multirail_lab::Error;
    let hint = match error {
        Error::NotRoot => "run this command with sudo",
        Error::CommandMissing(_) => "on Debian and Ubuntu: apt install iproute2",
        Error::LinkWithoutRate { from, to } => {
            return Some(format!(
                "give the link a rate with `--link {from}-{to}=RATE`, or all links one with `--link-default RATE`"
            ));
        }
        Error::NotWan { .. } => "create the lab with `--delay 0ms` or another delay, which can then change",
        Error::AlreadyUp(name) => {
            return Some(format!("`multirail lab down --name {name}` takes it down, also if it is incomplete"));
        }
        Error::NotUp(_) => "`multirail lab list` shows the labs that are up",
        Error::NoPorts { .. } => "create the lab with `--ports`, or change a whole rail",
        Error::NoAddress { .. } => "create the lab with `--subnets`, which gives every port an address",
        Error::Relay { source, .. } if source.kind() == ErrorKind::NotFound => {
            "a rail with a delay needs netem or TUN/TAP in the kernel, and the device /dev/net/tun"
        }
        Error::Sysctl { key, source, .. }
            if key == "net.ipv4.tcp_congestion_control" && source.kind() == ErrorKind::PermissionDenied =>
        {
            "a host of a lab can only use what the machine allows: \
             sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for an error of placement.
fn placement(error: &multirail::placement::Error) -> Option<String> {
    use multirail::placement::Error;
    let hint = match error {
        Error::Rights(_) => "run it as root, or with these rights (docs/guide/placement.md)",
        Error::AlreadyUp => "`multirail place down` ends it",
        Error::NotUp => "`multirail place up` starts it",
        Error::OtherVersion(_) => "`multirail place down`, then `multirail place up`",
        Error::Token(error) => return session(error),
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for an error of a session.
fn session(error: &multirail::Error) -> Option<String> {
    use multirail::Error;
    let hint = match error {
        Error::NoRail { .. } => "`multirail rails HOST` lists the rails, and `--rails` selects some of them",
        Error::Unreachable { .. } => "check that `multirail serve` runs there, and that no firewall blocks its port",
        Error::NotMultirail { .. } | Error::HandshakeTimeout { .. } => "check the host and the port",
        Error::Busy { .. } => "`multirail serve --max-sessions N` sets the limit of the server",
        Error::TokenMissing { key } => {
            return Some(format!(
                "give the token of the server with `--token-file FILE`, or add this line to {AUTHORIZED} of the server: {key}"
            ));
        }
        Error::TokenUnknown => "leave out `--token-file`, or start the server with it",
        Error::KeyRefused { key } => {
            return Some(format!(
                "run `multirail pair` on the server, or add this line to {AUTHORIZED} of the server: {key}"
            ));
        }
        Error::HostUnknown { host, key } => {
            return Some(format!(
                "run `multirail pair` on the server; or `multirail id` there shows its key, and if it is this one, add \
                 this line to {KNOWN} here: {} {key}",
                host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name)
            ));
        }
        Error::PlaintextDiffers { .. } => "give `--plaintext` to both sides or to neither",
        Error::CodeWrong => "run `multirail pair` on the server again; it shows a new code",
        Error::TokenWrong => "give both sides the same file with `--token-file FILE`",
        Error::TokenFile { path, why } => return token_file(path, why),
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for a token in a file.
fn token_file(path: &Path, why: &TokenError) -> Option<String> {
    let path = path.display();
    match why {
        TokenError::Shared { .. } => Some(format!("chmod 600 {path}")),
        TokenError::Io(error) if error.kind() == ErrorKind::NotFound => {
            Some(format!("`multirail token {path}` creates it; all hosts need the same file"))
        }
        TokenError::Io(error) if error.kind() == ErrorKind::AlreadyExists => {
            Some("give this file to commands with `--token-file FILE`, or choose another name".to_owned())
        }
        other => secret(other),
    }
}

/// The hint for a secret.
fn secret(error: &TokenError) -> Option<String> {
    match error {
        TokenError::Short { .. } => Some("`multirail token FILE` creates a file with 256 random bits".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use multirail_lab::Error;

    fn hint(error: Error) -> String {
        hint_of(&error.into()).unwrap_or_default()
    }

    fn lab_name() -> String {
        "wan".to_owned()
    }

    #[test]
    fn an_error_of_a_command_has_its_hint_and_not_in_its_text() {
        let error = Err::<(), _>(error_with_hint("it failed", "do it again")).context("step 1").unwrap_err();
        assert_eq!(
            (format!("{error:#}").as_str(), hint_of(&error).as_deref()),
            ("step 1: it failed", Some("do it again"))
        );
        assert_eq!(hint_of(&anyhow::anyhow!("it failed")), None);
    }

    #[test]
    fn root_and_missing_commands() {
        assert!(hint(Error::NotRoot).contains("sudo"));
        assert!(hint(Error::CommandMissing("tc")).contains("iproute2"));
    }

    #[test]
    fn labs_by_name() {
        assert!(hint(Error::AlreadyUp(lab_name())).contains("lab down --name wan"));
        assert!(hint(Error::NotUp(lab_name())).contains("lab list"));
    }

    #[test]
    fn options_that_the_lab_was_created_without() {
        assert!(hint(Error::LinkWithoutRate { from: "a".into(), to: "b".into() }).contains("--link a-b=RATE"));
        assert!(hint(Error::NotWan { lab: lab_name(), rail: 0 }).contains("--delay 0ms"));
        assert!(hint(Error::NoPorts { lab: lab_name() }).contains("--ports"));
        assert!(hint(Error::NoAddress { lab: lab_name(), host: "a".into(), port: 1 }).contains("--subnets"));
    }

    #[test]
    fn sessions_and_their_tokens() {
        use multirail::Error;
        let hint = |error: Error| hint_of(&error.into()).unwrap_or_default();
        let peer = || "10.0.0.1:7717".to_owned();
        assert!(hint(Error::NotMultirail { peer: peer(), what: "HTTP".to_owned() }).contains("port"));
        assert!(hint(Error::HandshakeTimeout { peer: peer(), after: std::time::Duration::ZERO }).contains("port"));
        assert!(hint(Error::NoRail { host: peer(), rail: None, why: String::new() }).contains("--rails"));
        let of_the_system = std::io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        assert!(hint(Error::Unreachable { host: peer(), cause: of_the_system }).contains("multirail serve"));
        assert!(hint(Error::Busy { sessions: 256 }).contains("--max-sessions"));
        assert!(
            hint(Error::TokenMissing { key: multirail::Identity::of_process().public_key() }).contains("--token-file")
        );
        assert!(hint(Error::TokenWrong).contains("same file"));
        let file = |why: TokenError| hint(Error::TokenFile { path: "/a/token".into(), why });
        assert_eq!(file(TokenError::Shared { mode: 0o644 }), "chmod 600 /a/token");
        assert!(file(std::io::Error::from(ErrorKind::NotFound).into()).contains("multirail token /a/token"));
        assert!(file(std::io::Error::from(ErrorKind::AlreadyExists).into()).contains("another name"));
        let short = || TokenError::Short { length: 8, needed: 22, unit: "characters" };
        assert!(file(short()).contains("multirail token FILE"));
        assert_eq!(hint_of(&anyhow::Error::from(short()).context("stdin")), Some(file(short())));
        let within_placement = multirail::placement::Error::from(Error::TokenFile { path: "t".into(), why: short() });
        assert_eq!(hint_of(&within_placement.into()), Some(file(short())));
        let key = multirail::Identity::of_process().public_key();
        assert!(hint(Error::KeyRefused { key }).contains(&key.to_string()));
        assert!(hint(Error::HostUnknown { host: peer(), key }).contains(&format!("10.0.0.1 {key}")));
        assert!(hint(Error::PlaintextDiffers { ours: true }).contains("--plaintext"));
        assert_eq!(hint(Error::Closed), "");
    }

    #[test]
    fn a_host_that_does_not_answer() {
        // The listener reserves a port and is closed before the connection attempt.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
        let host = closed.to_string();
        let connect = multirail::Session::connect(&host, multirail::Config::default());
        let error = multirail::runtime::block_on(async { connect.await.map(|_| ()) }).unwrap_err();
        let within_a_copy = anyhow::Error::from(multirail::files::CopyError::from(error));
        assert!(hint_of(&within_a_copy).is_some_and(|hint| hint.contains("multirail serve")));
    }

    #[test]
    fn placement_that_is_up_and_that_is_not() {
        use multirail::placement::Error;
        let hint = |error: Error| hint_of(&error.into()).unwrap_or_default();
        assert!(hint(Error::AlreadyUp).contains("place down"));
        assert!(hint(Error::NotUp).contains("place up"));
        assert!(hint(Error::OtherVersion("x".into())).contains("place down"));
        assert!(hint(Error::Rights("CAP_BPF".into())).contains("root"));
        assert_eq!(hint(Error::AgentRuns), "");
    }

    #[test]
    fn limits_of_the_kernel() {
        let relay = |kind: ErrorKind| Error::Relay { lab: lab_name(), doing: "x", source: kind.into() };
        assert!(hint(relay(ErrorKind::NotFound)).contains("/dev/net/tun"));
        assert_eq!(hint(relay(ErrorKind::OutOfMemory)), "");
        let sysctl = |key: &str| Error::Sysctl {
            host: "a".into(),
            key: key.into(),
            value: "bbr".into(),
            source: ErrorKind::PermissionDenied.into(),
        };
        assert!(hint(sysctl("net.ipv4.tcp_congestion_control")).contains("tcp_allowed_congestion_control"));
        assert_eq!(hint(sysctl("net.ipv4.tcp_rmem")), "");
    }
}

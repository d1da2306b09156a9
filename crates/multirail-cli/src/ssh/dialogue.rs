//! What the two sides of a copy over ssh say to each other, before the copy has connections of its
//! own.
//!
//! The far side writes lines that begin with [`MARK`] to stdout. Other lines are left out, because
//! start-up files of a shell may print. The near side answers on stdin:
//!
//! ```text
//! near                                  far
//!                                    <- system Linux x86_64     (these three only
//!                                    <- directory                when a program
//!   the program                      ->                          is lent)
//!                                    <- version multirail 0.1.0
//!   Invitation, an object of JSON    ->
//!                                    <- ready, and Ready as an object of JSON
//!   the end of stdin                 ->
//! ```
//!
//! Instead of a line, the far side may write one of `absent`, `broken`, `no-directory` or `failed`
//! with a reason.

use multirail::PublicKey;
use multirail::handshake::PROTOCOL_VERSION;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::str::FromStr;

/// The beginning of each line of the far side.
pub const MARK: &str = "multirail-copy: ";
/// The program that this side runs, as `--version` prints it.
const OWN_VERSION: &str = concat!("multirail ", env!("CARGO_PKG_VERSION"));
/// The most lines that are read before the far side is ready.
const MAX_LINES: usize = 10_000;

/// What the near side asks for. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The key of the near side.
    #[serde(with = "text")]
    pub key: PublicKey,
    /// Whether data travels unencrypted.
    pub plaintext: bool,
    /// The ports that the server may listen on; any free one if there are none.
    pub ports: Option<PortRange>,
}

/// Where the server of the far side listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The version of its protocol.
    pub protocol: u16,
    /// Its key.
    #[serde(with = "text")]
    pub key: PublicKey,
    /// The port.
    pub port: u16,
    /// The addresses of the far side, the likeliest first.
    pub addresses: Vec<IpAddr>,
}

/// Keys as text.
mod text {
    use multirail::PublicKey;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(key: &PublicKey, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(key)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Ports from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The ports in order.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }
}

impl FromStr for PortRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err("write a port, or a range such as 7000-7010"),
        }
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The dialogue of the near side: takes the lines of the far side and says what to do.
pub struct Dialogue {
    /// The system of this host, if this side lends its program.
    lends: Option<String>,
    /// The version of the far side's program, as it says.
    version: Option<String>,
    lines: usize,
}

/// What the near side does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads the next line.
    Read,
    /// Sends the program.
    SendProgram,
    /// Sends the invitation.
    SendInvitation,
    /// Connects.
    Connect(Ready),
}

/// Why the dialogue cannot go on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The far side does not have the program.
    #[error("it has no program {0}")]
    Absent(String),
    /// The program does not run there.
    #[error("the program does not run there")]
    Broken,
    /// The program of this side is for another kind of machine.
    #[error("the program of this side is for {own}, and that host is {theirs}")]
    System {
        /// The kind of machine of this side.
        own: String,
        /// That of the far side.
        theirs: String,
    },
    /// There is no directory from which it may run programs.
    #[error("it has no directory to which this side may write a program that runs: neither TMPDIR, /tmp nor the home")]
    NoDirectory,
    /// The versions of the two sides do not fit.
    #[error("its version does not fit: it has {theirs}, this side {OWN_VERSION} (protocol {PROTOCOL_VERSION})")]
    Version {
        /// What the far side has.
        theirs: String,
    },
    /// The server did not start.
    #[error("the server there did not start: {0}")]
    Failed(String),
    /// It says something else.
    #[error("it says what this side does not understand: {0}")]
    Unknown(String),
}

impl Dialogue {
    /// With a program that is on the other host.
    pub fn installed() -> Self {
        Self { lends: None, version: None, lines: 0 }
    }

    /// With the program of this host, which is for `system`.
    pub fn lending(system: String) -> Self {
        Self { lends: Some(system), version: None, lines: 0 }
    }

    /// Takes a line.
    pub fn take(&mut self, line: &str) -> Result<Step, Refusal> {
        self.lines += 1;
        let Some(said) = line.trim_end().strip_prefix(MARK) else {
            return if self.lines < MAX_LINES { Ok(Step::Read) } else { Err(Refusal::Unknown(line.to_owned())) };
        };
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        match (word, &self.lends, &self.version) {
            ("absent", ..) => Err(Refusal::Absent(rest.to_owned())),
            ("broken", ..) => Err(Refusal::Broken),
            ("no-directory", ..) => Err(Refusal::NoDirectory),
            ("failed", ..) => Err(Refusal::Failed(serde_json::from_str(rest).unwrap_or_else(|_| rest.to_owned()))),
            ("system", Some(own), None) if own == rest => Ok(Step::Read),
            ("system", Some(own), None) => Err(Refusal::System { own: own.clone(), theirs: rest.to_owned() }),
            ("directory", Some(_), None) => Ok(Step::SendProgram),
            ("version", _, None) => {
                self.version = Some(rest.to_owned());
                Ok(Step::SendInvitation)
            }
            ("ready", _, Some(version)) => match serde_json::from_str::<Ready>(rest) {
                Ok(ready) if ready.protocol == PROTOCOL_VERSION => Ok(Step::Connect(ready)),
                // Other versions may say more or less in this line.
                _ => match serde_json::from_str::<serde_json::Value>(rest).ok().and_then(|r| r["protocol"].as_u64()) {
                    Some(protocol) => Err(Refusal::Version { theirs: format!("{version} (protocol {protocol})") }),
                    None => Err(Refusal::Unknown(said.to_owned())),
                },
            },
            _ => Err(Refusal::Unknown(said.to_owned())),
        }
    }

    /// Why the far side has ended although it said nothing of a failure; `None` if it does not
    /// follow from what it has said. `code` is the exit code of its program.
    pub fn ended(&self, code: Option<i32>) -> Option<Refusal> {
        // The exit code of a command line that the program does not know.
        let theirs = self.version.clone().filter(|_| code == Some(2))?;
        Some(Refusal::Version { theirs: format!("{theirs}, without copies over ssh") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use multirail::Identity;

    fn take(dialogue: &mut Dialogue, line: &str) -> Result<Step, Refusal> {
        dialogue.take(&format!("{MARK}{line}\n"))
    }

    fn ready(protocol: u16) -> String {
        format!(
            "ready {{\"protocol\":{protocol},\"port\":99,\"addresses\":[\"10.0.0.1\",\"fd00::1\"],\"key\":\"{}\",\"more\":1}}",
            Identity::of_process().public_key()
        )
    }

    #[test]
    fn a_program_that_is_there_is_invited() {
        let mut dialogue = Dialogue::installed();
        assert_eq!(dialogue.take("Welcome!\r\n"), Ok(Step::Read));
        assert_eq!(take(&mut dialogue, "version multirail 0.1.0"), Ok(Step::SendInvitation));
        assert_eq!(dialogue.take("multirail-copy\n"), Ok(Step::Read));
        let addresses = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let key = Identity::of_process().public_key();
        let connect = Step::Connect(Ready { protocol: PROTOCOL_VERSION, key, port: 99, addresses });
        assert_eq!(take(&mut dialogue, &ready(PROTOCOL_VERSION)), Ok(connect));
    }

    #[test]
    fn a_program_is_lent_to_a_machine_of_the_same_kind_only() {
        let lending = || Dialogue::lending("Linux x86_64".to_owned());
        let mut dialogue = lending();
        assert_eq!(take(&mut dialogue, "system Linux x86_64"), Ok(Step::Read));
        assert_eq!(take(&mut dialogue, "directory"), Ok(Step::SendProgram));
        assert_eq!(take(&mut dialogue, "version multirail 0.1.0"), Ok(Step::SendInvitation));
        let other = take(&mut lending(), "system Linux aarch64").unwrap_err();
        assert_eq!(other.to_string(), "the program of this side is for Linux x86_64, and that host is Linux aarch64");
        // A host that is not to get the program does not get it.
        for line in ["directory", "system Linux x86_64"] {
            assert!(matches!(take(&mut Dialogue::installed(), line), Err(Refusal::Unknown(_))), "{line}");
        }
    }

    /// A host is invited once, and only after it has said its version.
    #[test]
    fn steps_come_in_order() {
        let mut dialogue = Dialogue::installed();
        assert!(matches!(take(&mut dialogue, &ready(PROTOCOL_VERSION)), Err(Refusal::Unknown(_))));
        assert_eq!(take(&mut dialogue, "version multirail 0.1.0"), Ok(Step::SendInvitation));
        assert!(matches!(take(&mut dialogue, "version multirail 0.1.0"), Err(Refusal::Unknown(_))));
    }

    #[test]
    fn refusals() {
        let refusal = |line: &str| take(&mut Dialogue::installed(), line).unwrap_err().to_string();
        assert_eq!(refusal("absent /opt/m r"), "it has no program /opt/m r");
        assert_eq!(refusal("failed \"no\\nport\""), "the server there did not start: no\nport");
        assert_eq!(refusal("failed no port"), "the server there did not start: no port");
        assert!(refusal("no-directory").contains("/tmp"));
        assert!(refusal("what").contains("what"));
        let mut dialogue = Dialogue::installed();
        let noise = (0..MAX_LINES).map(|_| dialogue.take("noise")).find(Result::is_err);
        assert_eq!(noise, Some(Err(Refusal::Unknown("noise".to_owned()))));
    }

    #[test]
    fn versions_that_do_not_fit_are_both_named() {
        let mut dialogue = Dialogue::installed();
        assert_eq!(dialogue.ended(Some(2)), None, "it has not said its version");
        take(&mut dialogue, "version multirail 0.0.9").unwrap();
        let named = |refusal: Refusal| {
            let text = refusal.to_string();
            assert!(text.contains("multirail 0.0.9") && text.contains(OWN_VERSION), "{text}");
        };
        named(dialogue.ended(Some(2)).unwrap());
        assert_eq!((dialogue.ended(Some(1)), dialogue.ended(None)), (None, None));
        named(take(&mut dialogue, &ready(PROTOCOL_VERSION + 1)).unwrap_err());
        named(take(&mut dialogue, "ready {\"protocol\":1}").unwrap_err());
    }

    #[test]
    fn an_invitation_is_read_as_it_was_written() {
        let key = Identity::of_process().public_key();
        let invitation = Invitation { key, plaintext: true, ports: "7000-7010".parse().ok() };
        let line = serde_json::to_string(&invitation).unwrap();
        assert_eq!(serde_json::from_str::<Invitation>(&line).unwrap(), invitation);
        assert!(serde_json::from_str::<Invitation>(&line.replace("ed25519:", "rsa:")).is_err());
    }

    #[test]
    fn ranges_of_ports() {
        let range = |text: &str| text.parse::<PortRange>();
        assert_eq!(range("7000").map(|r| r.ports().collect()), Ok(vec![7000]));
        assert_eq!(range("7000-7002").map(|r| r.ports().collect()), Ok(vec![7000, 7001, 7002]));
        assert_eq!(range("65535").map(|r| r.ports().collect()), Ok(vec![65535]));
        for bad in ["", "0", "7002-7000", "x", "7000-", "70000", "1-2-3"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}

//! `multirail copy-server`, which `multirail cp` starts on the other host over ssh.

use super::raise_file_limit;
use super::serve::end_of_stdin;
use crate::interrupt;
use crate::printer::Printer;
use crate::ssh::dialogue::{Invitation, MARK, Ready};
use anyhow::{Context, bail};
use multirail::files::{FILES, FilesHandler};
use multirail::handshake::PROTOCOL_VERSION;
use multirail::rails::local_ports;
use multirail::request::receive_request;
use multirail::router::{Next, ProtocolHandler};
use multirail::session::{Accepted, ListenConfig, Listener, NewSession};
use multirail::{AuthorizedKeys, Client, Config, Error, Identity, runtime};
use std::io::{BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Duration;

/// The longest invitation.
const MAX_INVITATION_BYTES: u64 = 64 << 10;
/// How long the server waits for a session. Its client has gone if none comes, although ssh has not
/// noticed.
const WAIT_FOR_SESSION: Duration = Duration::from_secs(120);
/// The most addresses that the client is told.
const MAX_ADDRESSES: usize = 16;

/// Serve one copy of the user who starts this over ssh; it is no command for people
#[derive(clap::Args)]
pub struct CopyServerArgs {}

pub fn run(CopyServerArgs {}: CopyServerArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let interrupted = interrupt::listen()?;
    let invitation = invitation();
    let stdin_ended = end_of_stdin()?;
    raise_file_limit();
    let served = runtime::block_on(async {
        let serve = async {
            let listener = listen(invitation?).await?;
            let ready = Ready {
                protocol: PROTOCOL_VERSION,
                key: Identity::of_process().public_key(),
                port: listener.address().port(),
                addresses: addresses(std::env::var("SSH_CONNECTION").ok().as_deref()).await,
            };
            say("ready", &ready)?;
            serve(listener, WAIT_FOR_SESSION).await;
            anyhow::Ok(())
        };
        // Dropping the session removes incomplete files.
        Ok(tokio::select! {
            served = serve => served,
            _ = stdin_ended => Ok(()),
            () = interrupted.notified() => Ok(()),
        })
    })?;
    let Err(error) = served else { return Ok(ExitCode::SUCCESS) };
    if say("failed", &format!("{error:#}")).is_err() {
        printer.error(&error);
    }
    Ok(ExitCode::FAILURE)
}

/// Reads what the client asks for.
fn invitation() -> anyhow::Result<Invitation> {
    let mut line = String::new();
    let mut stdin = std::io::stdin().lock().take(MAX_INVITATION_BYTES);
    stdin.read_line(&mut line).context("cannot read stdin")?;
    serde_json::from_str(&line).context("stdin has no invitation; `multirail cp` starts this program over ssh")
}

/// Listens for the client that has the key.
async fn listen(Invitation { key, plaintext, ports }: Invitation) -> anyhow::Result<Listener> {
    let keys = AuthorizedKeys::default().with(key, Client::default());
    let config = Config::new().identity(Identity::of_process()).authorized_keys(keys).plaintext(plaintext);
    let ports: Vec<u16> = ports.map_or_else(|| vec![0], |range| range.ports().collect());
    let mut last = None;
    for port in &ports {
        for any in [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()] {
            match Listener::bind(ListenConfig::new((any, *port), config.clone())).await {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
    }
    let why = match last {
        Some(Error::Io { cause, .. }) => cause.to_string(),
        other => other.map(|error| error.to_string()).unwrap_or_default(),
    };
    match ports.as_slice() {
        [first, .., last] => bail!("none of the ports {first} to {last} can be used; the last one: {why}"),
        _ => bail!("port {} cannot be used: {why}", ports.first().copied().unwrap_or_default()),
    }
}

/// This host's addresses for the client. First the one that ssh was reached at, which `connection`
/// has as the third word: the variable `SSH_CONNECTION`.
async fn addresses(connection: Option<&str>) -> Vec<IpAddr> {
    let of_ssh = connection.and_then(|words| words.split_whitespace().nth(2)?.parse::<IpAddr>().ok());
    let others = match local_ports().await {
        Ok(found) => found.ports.iter().map(|port| port.address).filter(|address| !is_link_local(address)).collect(),
        Err(error) => {
            tracing::debug!(%error, "the other addresses of this host are unknown");
            Vec::new()
        }
    };
    let mut all: Vec<IpAddr> = Vec::new();
    for address in of_ssh.into_iter().chain(others).map(|address| address.to_canonical()) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all.truncate(MAX_ADDRESSES);
    all
}

/// Whether an address needs the name of an interface, which the other host does not have.
fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Serves one session after the other until none comes for `wait`. The sessions run in the
/// caller's task, so that dropping the future drops what they have open.
async fn serve(mut listener: Listener, wait: Duration) {
    while let Ok(Ok(accepted)) = tokio::time::timeout(wait, listener.accept()).await {
        let Accepted::Session(new) = accepted else { continue };
        match serve_session(new).await {
            Ok(()) | Err(Error::Closed) => {}
            // The client knows, and tells its user.
            Err(error) => tracing::info!(%error, "the session failed"),
        }
    }
}

async fn serve_session(new: NewSession) -> multirail::Result<()> {
    let (peer, files) = (new.peer(), FilesHandler::as_user());
    let mut session = new.start();
    loop {
        let request = receive_request(&mut session).await?;
        let protocol = request.protocol();
        if protocol != FILES {
            return Err(Error::Protocol(format!("a request for `{protocol}`, and this server copies files only")));
        }
        match files.answer(session, peer, request).await? {
            Next::Request(same) => session = same,
            _ => return Ok(()),
        }
    }
}

/// Writes a line for the client.
fn say(word: &str, what: &impl serde::Serialize) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{MARK}{word} {}", serde_json::to_string(what)?)?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::dialogue::PortRange;
    use multirail::{KnownHosts, Session};

    fn invited(ports: &str) -> anyhow::Result<Listener> {
        let key = Identity::of_process().public_key();
        let invitation = Invitation { key, plaintext: false, ports: Some(ports.parse::<PortRange>().unwrap()) };
        runtime::block_on(async { Ok(listen(invitation).await) })?
    }

    #[test]
    fn the_first_free_port_of_the_range_is_used() {
        let taken = std::net::TcpListener::bind("[::]:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = invited(&port.to_string()).unwrap_err();
        assert!(error.to_string().contains("Address already in use"), "{error}");
        if port < u16::MAX {
            // Other programs may take the next port meanwhile.
            match invited(&format!("{port}-{}", port + 1)) {
                Ok(listener) => assert_eq!(listener.address().port(), port + 1),
                Err(error) => assert!(error.to_string().starts_with("none of the ports"), "{error}"),
            }
        }
    }

    #[test]
    fn the_address_of_ssh_comes_first() {
        let first = |connection| {
            let found = runtime::block_on(async { Ok(addresses(connection).await) }).unwrap();
            assert!(!found.iter().any(is_link_local) && found.len() <= MAX_ADDRESSES, "{found:?}");
            found.first().copied()
        };
        let ssh = "10.9.8.7".parse().ok();
        assert_eq!(first(Some("10.0.0.1 4000 10.9.8.7 22")), ssh);
        assert_eq!(first(Some("::1 4000 ::ffff:10.9.8.7 22")), ssh);
        assert_ne!(first(Some("10.9.8.7")), ssh);
        first(None);
    }

    /// Another client of the host does not get in.
    #[test]
    fn only_the_invited_key_is_served() {
        let invited = Identity::generate();
        let key = invited.public_key();
        let connected = runtime::block_on(async {
            let listener = listen(Invitation { key, plaintext: false, ports: None }).await.unwrap();
            let address = format!("127.0.0.1:{}", listener.address().port());
            let connect = async |identity| {
                let server = KnownHosts::default().with(&address, Identity::of_process().public_key());
                let session = Session::connect(&address, Config::new().identity(identity).known_hosts(server)).await?;
                session.close().await
            };
            let both = async { (connect(Identity::generate()).await, connect(invited).await) };
            tokio::select! {
                () = serve(listener, Duration::from_secs(60)) => panic!("it serves"),
                both = both => Ok(both),
            }
        });
        let (other, invited) = connected.unwrap();
        assert!(matches!(other, Err(Error::KeyRefused { .. })), "{other:?}");
        invited.unwrap();
    }

    /// A client that has gone leaves no server behind, also where ssh has not noticed.
    #[test]
    fn a_server_without_a_session_ends() {
        runtime::block_on(async {
            let listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), Config::new())).await?;
            let address = listener.address().to_string();
            let client = async {
                let session = Session::connect(&address, Config::new()).await?;
                session.close().await
            };
            let serve = serve(listener, Duration::from_millis(200));
            let (closed, ()) = tokio::join!(client, serve);
            closed
        })
        .unwrap();
    }
}

//! A SOCKS5 server (RFC 1928) whose connections use all rails.
//!
//! It connects (`CONNECT`) for clients that need no authentication. Names are resolved on this host.

use crate::allow::is_own;
use crate::client::ForwardError;
use crate::peers::{Found, Peers};
use crate::relay::relay;
use crate::via::Via;
use fast_socks5::server::{Socks5ServerProtocol, SocksServerError, states};
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{ReplyError, Socks5Command};
use multirail_net::streams::SessionStream;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// Within this time, a client must say where it wants to connect to.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// What a client is told of the address that this side has: none, as with other servers.
const NO_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Through which server connections go.
#[derive(Debug)]
pub enum Route {
    /// All through this one.
    Via(Via),
    /// Each through the one of its target's host. Connections to other hosts go out plainly.
    Peers(Peers),
}

/// Why a client of the SOCKS server was not connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocksError {
    /// The client does not speak SOCKS5, asks for something else than a connection, or has gone.
    #[error("a SOCKS client: {0}")]
    Client(String),
    /// The name has no address.
    #[error("the name {name}: {cause}")]
    Name {
        /// The name that the client asked for.
        name: String,
        /// The resolver's error.
        cause: io::Error,
    },
    /// The target cannot be reached from this host, and no server forwards to it.
    #[error("{target}: {cause}")]
    Plain {
        /// The target.
        target: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// The server does not forward the connection.
    #[error(transparent)]
    Forward(#[from] ForwardError),
}

/// Serves one client to the end of its connection.
///
/// # Errors
///
/// If the client could not be connected. The client has been told.
///
/// # Cancel safety
///
/// Dropping the future resets the connection.
pub async fn serve(client: TcpStream, route: &Route) -> Result<(), SocksError> {
    let _ = client.set_nodelay(true);
    let asked = tokio::time::timeout(REQUEST_WITHIN, read_request(client)).await;
    let (client, target) = asked.map_err(|_| SocksError::Client("it did not ask in time".to_owned()))??;
    match open(target, route).await {
        Ok(opened) => {
            let client = client.reply_success(NO_ADDRESS).await.map_err(client_error)?;
            let relayed = match opened {
                Opened::Stream(stream) => relay(client, stream).await.map(drop),
                Opened::Plain(target) => copy(client, target).await,
            };
            if let Err(error) = relayed {
                tracing::debug!(%error, "a connection of a SOCKS client");
            }
            Ok(())
        }
        Err(error) => {
            client.reply_error(&reply_of(&error)).await.map_err(client_error)?;
            Err(error)
        }
    }
}

/// A client that waits for the answer.
type Asking = Socks5ServerProtocol<TcpStream, states::CommandRead>;

async fn read_request(client: TcpStream) -> Result<(Asking, TargetAddr), SocksError> {
    let client = Socks5ServerProtocol::accept_no_auth(client).await.map_err(client_error)?;
    let (client, command, target) = client.read_command().await.map_err(client_error)?;
    if !matches!(command, Socks5Command::TCPConnect) {
        client.reply_error(&ReplyError::CommandNotSupported).await.map_err(client_error)?;
        return Err(SocksError::Client("it asks for something else than a TCP connection".to_owned()));
    }
    Ok((client, target))
}

fn client_error(error: SocksServerError) -> SocksError {
    SocksError::Client(error.to_string())
}

enum Opened {
    Stream(SessionStream),
    Plain(TcpStream),
}

/// Connects to the first address of a target that can be reached.
async fn open(target: TargetAddr, route: &Route) -> Result<Opened, SocksError> {
    let (name, port) = match target {
        TargetAddr::Ip(address) => return open_address(address, route).await,
        TargetAddr::Domain(name, port) => (name, port),
    };
    let found = tokio::net::lookup_host((name.as_str(), port)).await.map(Iterator::collect::<Vec<_>>);
    let addresses = match found {
        Ok(addresses) => addresses,
        Err(cause) => return Err(SocksError::Name { name, cause }),
    };
    let mut error = SocksError::Name { name, cause: io::ErrorKind::NotFound.into() };
    for address in addresses {
        match open_address(address, route).await {
            Ok(opened) => return Ok(opened),
            Err(this) => error = this,
        }
    }
    Err(error)
}

async fn open_address(target: SocketAddr, route: &Route) -> Result<Opened, SocksError> {
    let forwarder = match route {
        Route::Via(server) => server.session().await?,
        Route::Peers(_) if is_own(target.ip()) => return connect(target).await,
        Route::Peers(peers) => match peers.find(target.ip().to_canonical()).await {
            Found::Server(forwarder) => forwarder,
            Found::None => return connect(target).await,
            Found::Failed { host, error } => {
                tracing::warn!(%target, host, %error, "goes out plainly");
                return connect(target).await;
            }
        },
    };
    Ok(Opened::Stream(forwarder.open(target).await?))
}

async fn connect(target: SocketAddr) -> Result<Opened, SocksError> {
    TcpStream::connect(target).await.map(Opened::Plain).map_err(|cause| SocksError::Plain { target, cause })
}

/// Copies between two connections of this host until both directions have ended.
async fn copy(mut client: TcpStream, mut target: TcpStream) -> io::Result<()> {
    let copied = tokio::io::copy_bidirectional(&mut client, &mut target).await;
    if copied.is_err() {
        // Neither side takes a lost connection for an ended one.
        let _ = (client.set_zero_linger(), target.set_zero_linger());
    }
    copied.map(drop)
}

/// The reply of the protocol that is nearest to an error.
fn reply_of(error: &SocksError) -> ReplyError {
    let cause = match error {
        SocksError::Name { .. } => return ReplyError::HostUnreachable,
        SocksError::Forward(ForwardError::NotAllowed { .. }) => return ReplyError::ConnectionNotAllowed,
        SocksError::Plain { cause, .. } | SocksError::Forward(ForwardError::Target { cause, .. }) => cause,
        SocksError::Client(_) | SocksError::Forward(_) => return ReplyError::GeneralFailure,
    };
    match cause.kind() {
        io::ErrorKind::ConnectionRefused => ReplyError::ConnectionRefused,
        io::ErrorKind::NetworkUnreachable => ReplyError::NetworkUnreachable,
        io::ErrorKind::HostUnreachable => ReplyError::HostUnreachable,
        io::ErrorKind::TimedOut => ReplyError::TtlExpired,
        _ => ReplyError::GeneralFailure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fast_socks5::client::{Config, Socks5Stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A SOCKS server that forwards for no host, and a target that says what it hears.
    async fn servers() -> (SocketAddr, SocketAddr) {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socks = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = (socks.local_addr().unwrap(), echo.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = echo.accept().await {
                let (mut from, mut to) = connection.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            }
        });
        tokio::spawn(async move {
            let route = Route::Peers(Peers::probing(multirail_net::Config::new()));
            while let Ok((client, _)) = socks.accept().await {
                let _ = serve(client, &route).await;
            }
        });
        addresses
    }

    #[tokio::test]
    async fn clients_are_connected_by_address_and_by_name() {
        let (socks, echo) = servers().await;
        for host in ["127.0.0.1", "localhost"] {
            let client = Socks5Stream::connect(socks, host.to_owned(), echo.port(), Config::default());
            let mut client = client.await.unwrap();
            client.write_all(b"through").await.unwrap();
            client.shutdown().await.unwrap();
            let mut heard = String::new();
            client.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, "through");
        }
    }

    /// The second byte of the reply to a request, after a greeting without authentication.
    async fn reply(socks: SocketAddr, request: &[u8]) -> Option<u8> {
        let mut client = TcpStream::connect(socks).await.unwrap();
        client.write_all(&[5, 1, 0]).await.unwrap();
        client.read_exact(&mut [0; 2]).await.unwrap();
        client.write_all(request).await.unwrap();
        let mut reply = [0; 2];
        client.read_exact(&mut reply).await.ok()?;
        Some(reply[1])
    }

    #[tokio::test]
    async fn errors_are_those_of_the_protocol() {
        let (socks, _) = servers().await;
        // Port 9 of loopback; `BIND`; an address type that does not exist; a name that does not exist.
        assert_eq!(reply(socks, &[5, 1, 0, 1, 127, 0, 0, 1, 0, 9]).await, Some(5));
        assert_eq!(reply(socks, &[5, 2, 0, 1, 127, 0, 0, 1, 0, 9]).await, Some(7));
        assert_eq!(reply(socks, &[5, 1, 0, 9, 127, 0, 0, 1, 0, 9]).await, Some(8));
        assert_eq!(reply(socks, &[b"\x05\x01\x00\x03\x0cno.such.test".as_slice(), &[0, 9]].concat()).await, Some(4));
        // A client of version 4 is not answered in version 5.
        let mut old = TcpStream::connect(socks).await.unwrap();
        old.write_all(&[4, 1, 0, 9, 127, 0, 0, 1, 0]).await.unwrap();
        assert_eq!(old.read(&mut [0]).await.unwrap_or(0), 0);
    }
}

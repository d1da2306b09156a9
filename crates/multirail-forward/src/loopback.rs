//! Where relays wait for the connections of programs.

use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections of programs that have reached the relay and were not accepted yet.
const BACKLOG: i32 = 4096;
/// The kernel's own limit would let each connection keep megabytes that the program believes to be sent.
/// They would delay what follows, and the end of the program.
const RECEIVE_BUFFER_BYTES: usize = 256 << 10;
/// How long a listener rests after an error, which is mostly that this process has too many open files.
const REST: Duration = Duration::from_millis(10);

/// Listeners on loopback for connections of each family. Without IPv6, both are of IPv4.
pub(crate) fn listeners() -> io::Result<[TcpListener; 2]> {
    let v6 = listen(Ipv6Addr::LOCALHOST.into()).or_else(|_| listen(Ipv4Addr::LOCALHOST.into()))?;
    Ok([listen(Ipv4Addr::LOCALHOST.into())?, v6])
}

/// The next connection of a program, and the address of the program's socket. It is cancel-safe.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((connection, own)) => return (connection, canonical(own)),
            Err(error) => {
                tracing::warn!(%error, "accepting a program's connection");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// The address without the form that IPv6 has for IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn listen(address: IpAddr) -> io::Result<TcpListener> {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    // Accepted connections have it from their listener.
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

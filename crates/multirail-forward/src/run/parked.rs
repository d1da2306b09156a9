//! A program's socket that connects while the target has not answered.
//!
//! A non-blocking `connect` must return at once, and the socket must stay in between until the target has
//! answered. It is connected to a listener of its own whose filter drops every SYN, so that it waits as
//! for a slow host. Then there are two ways out:
//!
//! - The target has answered: another socket with the listener's address connects to the program's
//!   socket. The SYNs cross (simultaneous open, RFC 9293, section 3.5), and both are connected at once.
//! - The target has refused: the listener closes, and the kernel refuses the next SYN of the program's
//!   socket, which follows the first one after a second.

use crate::loopback::canonical;
use socket2::{Domain, SockFilter, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::{TcpSocket, TcpStream};

/// `ret #0`: the packet is dropped.
const DROP: [SockFilter; 1] = [SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)];

/// A program's socket that connects, and the listener that does not answer.
#[derive(Debug)]
pub(super) struct Parked {
    /// Refuses the program's socket when it is dropped.
    listener: Socket,
    ends: Ends,
}

/// The program's end of a connection, and that of the relay.
pub(super) type Ends = (SocketAddr, SocketAddr);

impl Parked {
    /// Begins to connect a non-blocking socket.
    ///
    /// # Errors
    ///
    /// If it cannot reach loopback. It is as it was then.
    pub(super) fn new(socket: &Socket, is_v4: bool) -> io::Result<Self> {
        let loopback: IpAddr = if is_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let listener = shared_socket(SocketAddr::new(loopback, 0))?;
        listener.attach_filter(&DROP)?;
        listener.listen(1)?;
        let address = listener.local_addr()?.as_socket().ok_or_else(no_address)?;
        match socket.connect(&in_family(address, socket.domain()?).into()) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
            Ok(()) => return Err(io::Error::other("a filter that lets packets through")),
        }
        let own = socket.local_addr()?.as_socket().ok_or_else(no_address)?;
        Ok(Self { listener, ends: (canonical(own), address) })
    }

    /// Both ends of the program's socket.
    pub(super) fn ends(&self) -> Ends {
        self.ends
    }

    /// Connects the program's socket; returns the other end.
    ///
    /// # Errors
    ///
    /// If the program has closed it meanwhile.
    pub(super) async fn complete(self) -> io::Result<TcpStream> {
        let (own, address) = self.ends;
        let socket = shared_socket(address)?;
        let connected = TcpSocket::from_std_stream(socket.into()).connect(own).await;
        drop(self.listener);
        connected
    }
}

/// A socket that shares its address with another one of this process.
fn shared_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// An address as a socket of this family wants it.
pub(super) fn in_family(address: SocketAddr, domain: Domain) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) if domain == Domain::IPV6 => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

pub(super) fn no_address() -> io::Error {
    io::Error::other("a socket without an address")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    fn program_socket(domain: Domain) -> Socket {
        Socket::new(domain, Type::STREAM.nonblocking(), None).unwrap()
    }

    /// A program's socket in its runtime, and whether it has been connected.
    async fn writable(socket: Socket) -> (TcpStream, Option<io::Error>) {
        let stream = TcpStream::from_std(socket.into()).unwrap();
        tokio::time::timeout(Duration::from_secs(10), stream.writable())
            .await
            .expect("it does not wait for ever")
            .unwrap();
        let error = stream.take_error().unwrap();
        (stream, error)
    }

    #[tokio::test]
    async fn a_parked_socket_waits_and_is_connected() {
        for (domain, is_v4) in [(Domain::IPV4, true), (Domain::IPV6, true), (Domain::IPV6, false)] {
            let socket = program_socket(domain);
            let parked = Parked::new(&socket, is_v4).unwrap();
            let early = TcpStream::from_std(socket.try_clone().unwrap().into()).unwrap();
            assert!(tokio::time::timeout(Duration::from_millis(50), early.writable()).await.is_err());
            drop(early);
            let mut relay = parked.complete().await.unwrap();
            let (mut program, error) = writable(socket).await;
            assert!(error.is_none(), "{error:?}");
            program.write_all(b"there").await.unwrap();
            relay.write_all(b"back!").await.unwrap();
            let (mut there, mut back) = ([0; 5], [0; 5]);
            relay.read_exact(&mut there).await.unwrap();
            program.read_exact(&mut back).await.unwrap();
            assert_eq!((&there, &back), (b"there", b"back!"));
        }
    }

    #[tokio::test]
    async fn a_parked_socket_is_refused() {
        let socket = program_socket(Domain::IPV4);
        drop(Parked::new(&socket, true).unwrap());
        let (_, error) = writable(socket).await;
        assert_eq!(error.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }
}

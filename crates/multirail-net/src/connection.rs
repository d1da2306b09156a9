//! One encrypted TCP connection outside of sessions, for programs that wait with `poll` or block.

use crate::error::{Error, Result};
use crate::handshake::{self, Opened, Peer, Purpose};
use crate::protocol::ProtocolName;
use crate::secure::authorized_keys::Client;
use crate::secure::keys::Protection;
use crate::session::Config;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;

/// A connection to or from a server's [router](crate::router).
///
/// It blocks or not as its socket does. A write that fails with `WouldBlock` must be repeated with
/// the same bytes: some of them may be sealed already.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    protection: Protection,
    peer: Peer,
    client: Client,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, opened: Opened) -> Self {
        Self { stream, protection: opened.protection, peer: opened.peer, client: opened.client }
    }

    /// Opens a connection to `host` over `stream`, for this protocol of its router.
    ///
    /// # Errors
    ///
    /// Those of the handshake, as [`Session::connect`](crate::Session::connect) has them.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: dropping the future closes the connection.
    pub async fn open(
        mut stream: tokio::net::TcpStream,
        host: &str,
        config: &Config,
        protocol: ProtocolName,
    ) -> Result<Self> {
        let opened = handshake::open(&mut stream, host, config, Purpose::Connection { protocol }).await?;
        Ok(Self::new(stream.into_std().map_err(Error::io("taking over a connection"))?, opened))
    }

    /// Who the peer is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What this side knows of the peer, and what the peer may do here.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether both sides have given up encryption.
    pub fn is_plaintext(&self) -> bool {
        matches!(self.protection, Protection::Plaintext)
    }

    /// The socket, for its options and to wait for it. What is read from it or written to it is not
    /// protected.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether a read returns bytes although the socket may have none.
    pub fn is_readable(&self) -> bool {
        matches!(&self.protection, Protection::Sealed(records) if records.is_readable())
    }

    /// The socket. What follows is neither encrypted nor authenticated.
    pub fn into_unprotected(self) -> TcpStream {
        self.stream
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.protection {
            Protection::Plaintext => self.stream.read_vectored(parts),
            Protection::Sealed(records) => records.read(parts, |room| self.stream.read(room)),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.protection {
            Protection::Plaintext => self.stream.write_vectored(parts),
            Protection::Sealed(records) => records.write(parts, usize::MAX, || true, |bytes| self.stream.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

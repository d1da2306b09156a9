//! What the two sides say on a stream before the bytes of the connection.
//!
//! Each says one packet: a length of two bytes (little-endian) and a postcard body.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest body. The longest packet has an address of IPv6.
const MAX_PACKET_BYTES: usize = 64;

/// The request with which a client asks for streams.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ForwardRequest;

/// The answer to it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ForwardAnswer {
    /// The session carries streams from now on.
    Ready,
    /// This host forwards nothing for this client.
    Refused(String),
}

/// What the client says on a stream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    /// The address to connect to.
    pub(crate) target: SocketAddr,
}

/// What the server answers on a stream.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Opened {
    /// It is connected; bytes follow.
    Connected,
    /// The system's error of the connection attempt.
    Failed {
        /// As in `errno`.
        errno: i32,
    },
    /// The target is not on the list of what the client may reach.
    NotAllowed,
}

pub(crate) async fn write<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), packet: &T) -> io::Result<()> {
    let body = postcard::to_allocvec(packet).map_err(io::Error::other)?;
    debug_assert!(body.len() <= MAX_PACKET_BYTES);
    // One write, so that it is one frame.
    let mut bytes = (body.len() as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    to.write_all(&bytes).await
}

pub(crate) async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let length = usize::from(from.read_u16_le().await?);
    if length > MAX_PACKET_BYTES {
        return Err(invalid("the peer sent a packet that is too long"));
    }
    let mut body = [0; MAX_PACKET_BYTES];
    from.read_exact(&mut body[..length]).await?;
    match postcard::take_from_bytes(&body[..length]) {
        Ok((packet, [])) => Ok(packet),
        _ => Err(invalid("the peer sent an invalid packet")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn packets_are_bounded_before_they_are_read() {
        let (mut one, mut other) = tokio::io::duplex(4096);
        let target = "[2001:db8::1]:5432".parse().unwrap();
        write(&mut one, &Open { target }).await.unwrap();
        assert_eq!(read::<Open>(&mut other).await.unwrap().target, target);
        one.write_all(&(MAX_PACKET_BYTES as u16 + 1).to_le_bytes()).await.unwrap();
        assert_eq!(read::<Open>(&mut other).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        one.write_all(&[2, 0, 7, 7]).await.unwrap();
        assert_eq!(read::<Opened>(&mut other).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

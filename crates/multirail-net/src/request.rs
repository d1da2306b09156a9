//! Typed requests and answers over a session.
//!
//! A request is one message: the name of the protocol that answers it, then a postcard body of that
//! protocol's own type. The protocol defines what follows. Each further body is one message.

use crate::Session;
use crate::error::{Error, Result};
use crate::payload::VecSink;
use crate::protocol::ProtocolName;
use crate::record::Notes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The limit for a request or a body, in bytes. The longest ones carry paths.
const MAX_BODY_BYTES: u64 = 64 << 10;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    protocol: ProtocolName,
    body: Vec<u8>,
    notes: Notes,
}

impl Request {
    /// The protocol that the request is for.
    pub fn protocol(&self) -> ProtocolName {
        self.protocol
    }

    /// The body's bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Where a handler notes what the request asks for, for the server's records.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// The body as the protocol's request type.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if the bytes do not parse.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        parse(&self.body)
    }
}

/// Sends a request for `protocol`.
///
/// # Errors
///
/// Those of [`Session::send`].
///
/// # Cancel safety
///
/// That of [`Session::send`].
pub async fn send_request<T: Serialize>(session: &mut Session, protocol: ProtocolName, body: &T) -> Result<()> {
    send_request_bytes(session, protocol, &encode(body)?).await
}

/// Sends a request for `protocol` whose body is already encoded.
///
/// # Errors
///
/// Those of [`Session::send`].
///
/// # Cancel safety
///
/// That of [`Session::send`].
pub async fn send_request_bytes(session: &mut Session, protocol: ProtocolName, body: &[u8]) -> Result<()> {
    session.send(&[&protocol.to_bytes(), body].concat()).await
}

/// Receives a request.
///
/// # Errors
///
/// [`Error::Closed`] when the client has ended the session; [`Error::Protocol`] if the message is
/// not a request.
///
/// # Cancel safety
///
/// That of [`Session::recv`].
pub async fn receive_request(session: &mut Session) -> Result<Request> {
    let message = receive_bytes(session).await?;
    let Some((name, body)) = message.split_first_chunk::<{ ProtocolName::BYTES }>() else {
        return Err(Error::Protocol("a request without a protocol name".to_owned()));
    };
    Ok(Request { protocol: ProtocolName::from_bytes(*name), body: body.to_vec(), notes: Notes::default() })
}

/// Sends a body as one message.
///
/// # Errors
///
/// Those of [`Session::send`].
///
/// # Cancel safety
///
/// That of [`Session::send`].
pub async fn send<T: Serialize>(session: &mut Session, body: &T) -> Result<()> {
    session.send(&encode(body)?).await
}

/// Receives one message as a body.
///
/// # Errors
///
/// [`Error::Protocol`] if the message is longer than 64 KiB or cannot be parsed.
///
/// # Cancel safety
///
/// That of [`Session::recv`].
pub async fn receive<T: DeserializeOwned>(session: &mut Session) -> Result<T> {
    parse(&receive_bytes(session).await?)
}

fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(body).map_err(|e| Error::Protocol(format!("a request cannot be encoded: {e}")))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((body, [])) => Ok(body),
        _ => Err(Error::Protocol("an invalid request".to_owned())),
    }
}

async fn receive_bytes(session: &mut Session) -> Result<Vec<u8>> {
    let mut sink = VecSink::new(MAX_BODY_BYTES);
    match session.recv_into(&mut sink).await {
        Ok(_) => Ok(sink.bytes),
        Err(Error::MessageTooLarge { message_bytes, .. }) => {
            Err(Error::Protocol(format!("a request of {message_bytes} bytes")))
        }
        Err(error) => Err(error),
    }
}

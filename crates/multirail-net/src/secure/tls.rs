//! TLS 1.3 with raw public keys (RFC 7250): the key exchange of a session's first connection.
//!
//! Both sides present their key and prove that they have its private half. Which keys are trusted is
//! decided afterwards, by the [handshake](crate::handshake). TLS carries two packets and then hands
//! over to [records](super::record): one handshake serves all connections of a session.

use super::cipher::SECRET_BYTES;
use super::public_key::PublicKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme, version::TLS13,
};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The header of a TLS record; its length is in the last two bytes.
const HEADER_BYTES: usize = 5;
/// The most bytes that one side sends in a handshake. With a post-quantum key share, a client sends
/// 1.8 KB. TLS keeps up to two copies of them until the peer has proven its key.
const MAX_BYTES: usize = 4 << 10;
const PROTOCOL: &[u8] = b"multirail/3";
/// What precedes the 32 bytes of an Ed25519 key in DER (RFC 8410).
const KEY_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The two configurations of one identity.
pub(crate) struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Configs {
    /// The configurations of the key pair in this PKCS #8.
    pub(crate) fn new(pkcs8: &[u8]) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::try_from(pkcs8.to_vec()).map_err(|e| Error::General(e.to_owned()))?;
        let signing = provider.key_provider.load_private_key(private)?;
        let public = signing.public_key().ok_or_else(|| Error::General("the key has no public half".to_owned()))?;
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], signing));
        let verifier = Arc::new(AnyKey(provider.clone()));
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified.clone())));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The client's side of a handshake.
    pub(crate) fn client(&self) -> Handshake {
        let name = ServerName::try_from("multirail").expect("this is a valid name");
        let connection = ClientConnection::new(self.client.clone(), name);
        Handshake::new(connection.expect("the configuration is valid").into())
    }

    /// The server's side of a handshake.
    pub(crate) fn server(&self) -> Handshake {
        let connection = ServerConnection::new(self.server.clone());
        Handshake::new(connection.expect("the configuration is valid").into())
    }
}

/// A TLS connection during its handshake. It reads single records, so that it never takes bytes that
/// follow the handshake.
pub(crate) struct Handshake {
    connection: Connection,
    received_bytes: usize,
}

impl Handshake {
    fn new(connection: Connection) -> Self {
        Self { connection, received_bytes: 0 }
    }

    /// Appends what TLS wants to send to `out`.
    pub(crate) fn output(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(out)?;
        }
        Ok(())
    }

    /// Queues bytes of the application for [`Handshake::output`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection.writer().write_all(bytes)
    }

    /// Exchanges records until both sides have keys.
    pub(crate) async fn shake(&mut self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.feed(stream).await?;
            if self.connection.is_handshaking() {
                let mut out = Vec::new();
                self.output(&mut out)?;
                stream.write_all(&out).await?;
            }
        }
        Ok(())
    }

    /// Fills `bytes` with the peer's application data.
    pub(crate) async fn read_exact(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        mut bytes: &mut [u8],
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.connection.reader().read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.feed(stream).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads one record.
    async fn feed(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await?;
        let length = HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
        self.received_bytes += length;
        if self.received_bytes > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than any handshake"));
        }
        let mut record = vec![0; length];
        record[..HEADER_BYTES].copy_from_slice(&header);
        stream.read_exact(&mut record[HEADER_BYTES..]).await?;
        let mut left = &record[..];
        while !left.is_empty() {
            self.connection.read_tls(&mut left)?;
        }
        self.connection.process_new_packets().map_err(io::Error::other)?;
        Ok(())
    }

    /// The key that the peer has presented and proven.
    pub(crate) fn peer(&self) -> Option<PublicKey> {
        let bytes = self.connection.peer_certificates()?.first()?.strip_prefix(&KEY_PREFIX)?;
        Some(PublicKey::from_bytes(bytes.try_into().ok()?))
    }

    /// A secret for `label` that only the two sides have, bound to `context`.
    pub(crate) fn export(&self, label: &str, context: &[u8]) -> io::Result<[u8; SECRET_BYTES]> {
        self.connection
            .export_keying_material([0; SECRET_BYTES], label.as_bytes(), Some(context))
            .map_err(io::Error::other)
    }
}

/// Accepts every Ed25519 key whose private half the peer has.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl AnyKey {
    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.0.signature_verification_algorithms)
    }
}

const SCHEMES: [SignatureScheme; 1] = [SignatureScheme::ED25519];

fn no_tls12() -> Error {
    Error::General("multirail uses TLS 1.3 only".to_owned())
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

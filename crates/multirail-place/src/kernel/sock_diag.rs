//! Sockets and what a BPF program stores with them, listed by `sock_diag(7)`, as `ss --bpf-maps` does it.
//! This needs CAP_BPF, and no program of the tracing kind, which hardened kernels refuse.

use futures_util::{StreamExt, TryStreamExt};
use rtnetlink::packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLA_HEADER_SIZE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlaBuffer, NlasIterator,
};
use rtnetlink::proto;
use rtnetlink::sys::SocketAddr as NetlinkAddr;
use rtnetlink::sys::protocols::NETLINK_SOCK_DIAG;
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

// Numbers of include/uapi/linux/{sock_diag,inet_diag}.h and include/net/tcp_states.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_REQ_SK_BPF_STORAGES: u16 = 2;
const INET_DIAG_SK_BPF_STORAGES: u16 = 20;
const SK_DIAG_BPF_STORAGE_REQ_MAP_FD: u16 = 1;
const SK_DIAG_BPF_STORAGE: u16 = 1;
const SK_DIAG_BPF_STORAGE_MAP_VALUE: u16 = 3;
const TCP_TIME_WAIT: u32 = 6;
const TCP_LISTEN: u32 = 10;
const TCP_CLOSING: u32 = 11;
/// The states of sockets that send data.
const STATES: u32 = ((1 << (TCP_CLOSING + 1)) - 1) & !(1 << TCP_TIME_WAIT | 1 << TCP_LISTEN);
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// Bytes of `struct inet_diag_msg`.
const ANSWER_BYTES: usize = 72;

/// A socket of this network namespace that has a value in the map.
pub(crate) struct StoredSocket {
    /// `IPPROTO_TCP` or `IPPROTO_UDP`.
    pub(crate) protocol: libc::c_int,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Bytes in its send queue. For TCP, those that the other end has not acknowledged.
    pub(crate) send_queue_bytes: u32,
    /// Its value in the map.
    pub(crate) value: Vec<u8>,
}

/// Lists at most `most` of the TCP and UDP sockets that have a value in `map`, a map of socket
/// storage. Kernels can lack the list for a protocol; then its sockets are left out, with a warning.
pub(crate) async fn sockets_with_values(map: BorrowedFd<'_>, most: usize) -> io::Result<Vec<StoredSocket>> {
    let mut found = Vec::new();
    for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = Request { family: family as u8, protocol: protocol as u8, map: map.as_raw_fd() };
            match dump(request, most - found.len()).await {
                Ok(sockets) => found.extend(sockets),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!(protocol, "the kernel cannot list sockets of this protocol");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

async fn dump(request: Request, most: usize) -> io::Result<Vec<StoredSocket>> {
    let (connection, handle, _unsolicited) = proto::new_connection::<Message>(NETLINK_SOCK_DIAG)?;
    let protocol = libc::c_int::from(request.protocol);
    let mut message = NetlinkMessage::from(Message::Request(request));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let answers = handle.request(message, NetlinkAddr::new(0, 0)).map_err(io::Error::other)?;
    let sockets = answers
        .map(|answer| match answer.payload {
            NetlinkPayload::InnerMessage(Message::Answer(bytes)) => Ok(socket(protocol, &bytes)),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            _ => Ok(None),
        })
        .try_filter_map(|socket| ready(Ok(socket)))
        .take(most)
        .try_collect();
    tokio::select! {
        sockets = sockets => sockets,
        () = connection => Err(io::Error::other("the kernel closed the socket")),
    }
}

/// Reads an answer; `None` if the socket has no value in the map.
fn socket(protocol: libc::c_int, bytes: &[u8]) -> Option<StoredSocket> {
    let (head, attributes) = bytes.split_at_checked(ANSWER_BYTES)?;
    let stored = attribute(attributes, INET_DIAG_SK_BPF_STORAGES)?;
    let value = attribute(attribute(stored, SK_DIAG_BPF_STORAGE)?, SK_DIAG_BPF_STORAGE_MAP_VALUE)?;
    let end = |port: usize, address: usize| {
        let port = u16::from_be_bytes([head[port], head[port + 1]]);
        let bytes: [u8; 16] = head[address..address + 16].try_into().expect("the slice has 16 bytes");
        let [a, b, c, d, ..] = bytes;
        let ip: IpAddr = match libc::c_int::from(head[0]) {
            libc::AF_INET => Ipv4Addr::new(a, b, c, d).into(),
            // A dual-stack socket has IPv4 addresses mapped to IPv6.
            _ => Ipv6Addr::from(bytes).to_canonical(),
        };
        SocketAddr::new(ip, port)
    };
    Some(StoredSocket {
        protocol,
        local: end(4, 8),
        remote: end(6, 24),
        send_queue_bytes: u32::from_ne_bytes(head[60..64].try_into().expect("the slice has 4 bytes")),
        value: value.to_vec(),
    })
}

/// The value of the first attribute of a kind.
fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(bytes).map_while(|attribute: Result<NlaBuffer<&[u8]>, _>| attribute.ok());
    let attribute = attributes.find(|attribute| attribute.kind() == kind)?;
    let end = attribute.length().into();
    attribute.into_inner().get(NLA_HEADER_SIZE..end)
}

/// A list of one kind of sockets, with the values in a map.
#[derive(Debug, Clone, Copy)]
struct Request {
    family: u8,
    protocol: u8,
    map: RawFd,
}

impl Request {
    fn map_attribute(self) -> DefaultNla {
        let map = DefaultNla::new(SK_DIAG_BPF_STORAGE_REQ_MAP_FD, self.map.to_ne_bytes().to_vec());
        let mut nested = vec![0; map.buffer_len()];
        map.emit(&mut nested);
        DefaultNla::new(INET_DIAG_REQ_SK_BPF_STORAGES | NLA_F_NESTED, nested)
    }
}

/// What netlink carries here.
#[derive(Debug)]
enum Message {
    Request(Request),
    /// `struct inet_diag_msg` and its attributes.
    Answer(Vec<u8>),
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        match self {
            Self::Request(request) => REQUEST_BYTES + request.map_attribute().buffer_len(),
            Self::Answer(bytes) => bytes.len(),
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        match self {
            Self::Request(request) => {
                let (head, attributes) = buffer.split_at_mut(REQUEST_BYTES);
                head.fill(0);
                (head[0], head[1]) = (request.family, request.protocol);
                head[4..8].copy_from_slice(&STATES.to_ne_bytes());
                request.map_attribute().emit(attributes);
            }
            Self::Answer(bytes) => buffer.copy_from_slice(bytes),
        }
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self::Answer(payload.to_vec()))
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}

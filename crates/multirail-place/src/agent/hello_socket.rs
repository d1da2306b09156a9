//! The socket for hellos: broadcast Ethernet frames with a proof that the sender knows the token.

use super::counts::RefusedFrames;
use multirail_net::Token;
use multirail_proto::placement::Mac;
use multirail_proto::placement::hello::{Hello, MAX_HELLO_BYTES};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The EtherType for local experiments (IEEE 802). No other protocol has it, and switches forward
/// it.
const ETHERTYPE: u16 = 0x88b5;
const PROOF_BYTES: usize = blake3::OUT_LEN;
const MAX_FRAME_BYTES: usize = MAX_HELLO_BYTES + PROOF_BYTES;

/// A packet socket for the hellos of all ports.
pub(super) struct HelloSocket {
    socket: AsyncFd<OwnedFd>,
    key: [u8; 32],
    /// Counts of the received frames that are not valid hellos.
    pub(super) refused: RefusedFrames,
}

/// A hello, and how it was received.
pub(super) struct ReceivedHello {
    pub(super) ifindex: u32,
    pub(super) source: Mac,
    pub(super) hello: Hello,
}

impl HelloSocket {
    pub(super) fn open(token: &Token) -> io::Result<Self> {
        let protocol = Protocol::from(i32::from(ETHERTYPE.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
        socket.set_nonblocking(true)?;
        // Hellos bypass the port's queue, in which they would be late or lost with other traffic.
        let bypass: libc::c_int = 1;
        // SAFETY: the pointer is valid for the given length.
        let set = unsafe {
            let length = size_of_val(&bypass) as libc::socklen_t;
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                (&raw const bypass).cast(),
                length,
            )
        };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is owned by the value, so it stays open and the same.
        let socket = unsafe { AsyncFd::register_with_interest(OwnedFd::from(socket), Interest::READABLE) };
        let socket = socket.map_err(|error| error.into_parts().1)?;
        Ok(Self { socket, key: key(token), refused: RefusedFrames::default() })
    }

    /// Sends a hello from a port. Errors are ignored, because a port that is down cannot send.
    pub(super) fn send(&self, ifindex: u32, hello: &Hello) {
        let frame = seal(&self.key, hello);
        // SAFETY: zeros are a valid value of this struct of integers.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as libc::c_ushort;
        to.sll_protocol = ETHERTYPE.to_be();
        to.sll_ifindex = ifindex as libc::c_int;
        to.sll_halen = 6;
        to.sll_addr[..6].fill(0xff);
        // SAFETY: both buffers are valid for the given lengths.
        unsafe {
            let (data, length) = (frame.as_ptr().cast(), size_of_val(&to) as libc::socklen_t);
            libc::sendto(
                self.socket.as_raw_fd(),
                data,
                frame.len(),
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                length,
            );
        }
    }

    /// Receives the next valid hello, and counts other frames.
    ///
    /// Cancel-safe: a frame is received and returned without an await in between.
    pub(super) async fn receive(&mut self) -> io::Result<ReceivedHello> {
        loop {
            // One byte more than allowed, so that a longer frame is recognised.
            let mut frame = [0_u8; MAX_FRAME_BYTES + 1];
            let mut ready = self.socket.readable().await?;
            let Ok(received) = ready.try_io(|socket| receive_frame(socket.as_raw_fd(), &mut frame)) else { continue };
            let (length, ifindex, source) = match received {
                Ok(received) => received,
                // The kernel reports a port that went down; the other ports still work.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => continue,
                Err(error) => return Err(error),
            };
            match unseal(&self.key, &frame[..length]) {
                Ok(hello) => return Ok(ReceivedHello { ifindex, source, hello }),
                Err(Unsealed::Forged) => self.refused.forged += 1,
                Err(Unsealed::Malformed) => self.refused.malformed += 1,
            }
        }
    }
}

fn receive_frame(socket: libc::c_int, frame: &mut [u8]) -> io::Result<(usize, u32, Mac)> {
    // SAFETY: zeros are a valid value of this struct of integers.
    let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut from_length = size_of_val(&from) as libc::socklen_t;
    // SAFETY: both buffers are valid for the given lengths.
    let length = unsafe {
        libc::recvfrom(socket, frame.as_mut_ptr().cast(), frame.len(), 0, (&raw mut from).cast(), &raw mut from_length)
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let mut source = [0; 6];
    source.copy_from_slice(&from.sll_addr[..6]);
    Ok((length, from.sll_ifindex as u32, Mac(source)))
}

fn key(token: &Token) -> [u8; 32] {
    token.key_for("multirail 2026 placement hello")
}

fn seal(key: &[u8; 32], hello: &Hello) -> Vec<u8> {
    let mut frame = hello.encode();
    let proof = blake3::keyed_hash(key, &frame);
    frame.extend(proof.as_bytes());
    frame
}

#[derive(Debug, PartialEq, Eq)]
enum Unsealed {
    Forged,
    Malformed,
}

/// Decodes a frame after it has checked the proof.
fn unseal(key: &[u8; 32], frame: &[u8]) -> Result<Hello, Unsealed> {
    if frame.len() > MAX_FRAME_BYTES {
        return Err(Unsealed::Forged);
    }
    let (hello, proof) = frame.split_last_chunk::<PROOF_BYTES>().ok_or(Unsealed::Forged)?;
    // Compared in constant time.
    if blake3::keyed_hash(key, hello) != blake3::Hash::from_bytes(*proof) {
        return Err(Unsealed::Forged);
    }
    Hello::decode(hello).map_err(|_| Unsealed::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use multirail_proto::placement::hello::{Heard, HelloPort, MAX_HEARD};
    use proptest::prelude::*;

    fn hello(ports: u8, heard: usize) -> Hello {
        let port = |n| HelloPort { mac: Mac([2, 0, 0, 0, 1, n]), usable: true, speed_mbit_s: 1000 };
        let heard = vec![Heard { host: Mac([2, 0, 0, 0, 2, 0]), instance: 9, ports: 3 }; heard];
        Hello { instance: 1, counter: 2, port: 1, ports: (0..ports).map(port).collect(), heard }
    }

    #[test]
    fn the_longest_hello_fits_the_smallest_frame_of_ipv6() {
        let frame = seal(&[1; 32], &hello(16, MAX_HEARD));
        assert_eq!(frame.len(), MAX_FRAME_BYTES);
        assert!(frame.len() <= 1280, "{}", frame.len());
        assert_eq!(unseal(&[1; 32], &frame), Ok(hello(16, MAX_HEARD)));
    }

    #[test]
    fn another_token_a_changed_byte_and_too_long_a_frame_are_forged() {
        let (ours, theirs) = (key(&Token::new(b"one token")), key(&Token::new(b"another token")));
        let frame = seal(&ours, &hello(2, 1));
        assert_eq!(unseal(&ours, &frame), Ok(hello(2, 1)));
        assert_eq!(unseal(&theirs, &frame), Err(Unsealed::Forged));
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 1;
            assert_eq!(unseal(&ours, &changed), Err(Unsealed::Forged), "byte {at}");
        }
        assert_eq!(unseal(&ours, &[0; MAX_FRAME_BYTES + 1]), Err(Unsealed::Forged));
        assert_eq!(unseal(&ours, &[]), Err(Unsealed::Forged));
        let mut unknown = hello(2, 0).encode();
        unknown[4] = 99;
        let proof = blake3::keyed_hash(&ours, &unknown);
        unknown.extend(proof.as_bytes());
        assert_eq!(unseal(&ours, &unknown), Err(Unsealed::Malformed));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_refused(frame in prop::collection::vec(any::<u8>(), 0..1400)) {
            prop_assert_eq!(unseal(&[7; 32], &frame), Err(Unsealed::Forged));
        }
    }
}

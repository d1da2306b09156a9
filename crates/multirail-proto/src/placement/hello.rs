//! The hello: the message that a host sends from each of its ports, several times a second.
//!
//! Integers are big-endian. The proof that the sender knows the token follows the hello and is not
//! part of it: `multirail-place` appends and verifies it.
//!
//! ```text
//! 0   "mrpl", version 1
//! 5   number of the port it leaves from, number of ports p, number of hosts heard h
//! 8   instance, counter (8 bytes each)
//! 24  p times: address (6), usable (1), speed in Mbit/s (4)
//!     h times: address of the first port (6), instance (8), ports that hear it (2, bit k: port k)
//! ```

use super::{MAX_PORTS, Mac};

/// The largest number of hosts in one hello. If a host receives more, its hellos report them in turn.
pub const MAX_HEARD: usize = 64;
/// The size of the longest hello. Every Ethernet link that carries IPv6 can carry it.
pub const MAX_HELLO_BYTES: usize = HEADER_BYTES + MAX_PORTS * PORT_BYTES + MAX_HEARD * HEARD_BYTES;
const MAGIC: [u8; 5] = *b"mrpl\x01";
const HEADER_BYTES: usize = 24;
const PORT_BYTES: usize = 11;
const HEARD_BYTES: usize = 16;

/// A hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Identifies the sender since it started. A later instance has a larger number.
    pub instance: u64,
    /// Number of the hello among those of this instance, over all ports.
    pub counter: u64,
    /// The port from which it is sent.
    pub port: usize,
    /// The sender's ports.
    pub ports: Vec<HelloPort>,
    /// The hosts whose hellos the sender receives.
    pub heard: Vec<Heard>,
}

/// A port of the sender of a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloPort {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Whether the sender can use it.
    pub usable: bool,
    /// Its speed in Mbit/s; 0 if unknown.
    pub speed_mbit_s: u32,
}

/// A host whose hellos the sender receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// The address of its first port.
    pub host: Mac,
    /// The instance of that host. It proves that the hello is not older than the instance.
    pub instance: u64,
    /// Bit k: the sender's port k receives hellos of that host's port k.
    pub ports: u16,
}

/// Why bytes are not a valid hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Another protocol, or another version of this one.
    #[error("not a hello of this version")]
    Magic,
    /// The length does not match the numbers of ports and hosts.
    #[error("length does not match the content")]
    Length,
    /// More ports or hosts than allowed, or fewer than two ports.
    #[error("number out of range")]
    Range,
    /// The address of a port is not unicast, or is there twice.
    #[error("invalid address of a port")]
    Address,
}

impl Hello {
    /// Encodes the hello. Hosts beyond [`MAX_HEARD`] and ports beyond [`MAX_PORTS`] are left out.
    pub fn encode(&self) -> Vec<u8> {
        let (ports, heard) =
            (&self.ports[..self.ports.len().min(MAX_PORTS)], &self.heard[..self.heard.len().min(MAX_HEARD)]);
        let mut bytes = Vec::with_capacity(MAX_HELLO_BYTES);
        bytes.extend(MAGIC);
        bytes.extend([self.port as u8, ports.len() as u8, heard.len() as u8]);
        bytes.extend(self.instance.to_be_bytes());
        bytes.extend(self.counter.to_be_bytes());
        for port in ports {
            bytes.extend(port.mac.0);
            bytes.push(u8::from(port.usable));
            bytes.extend(port.speed_mbit_s.to_be_bytes());
        }
        for heard in heard {
            bytes.extend(heard.host.0);
            bytes.extend(heard.instance.to_be_bytes());
            bytes.extend(heard.ports.to_be_bytes());
        }
        bytes
    }

    /// Decodes a hello. Allocates memory for at most [`MAX_PORTS`] ports and [`MAX_HEARD`] hosts.
    ///
    /// # Errors
    /// If the bytes are not exactly one valid hello.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let mut reader = Reader(bytes);
        if reader.take::<5>()? != MAGIC {
            return Err(HelloError::Magic);
        }
        let [port, ports, heard] = reader.take::<3>()?.map(usize::from);
        if !(2..=MAX_PORTS).contains(&ports) || port >= ports || heard > MAX_HEARD {
            return Err(HelloError::Range);
        }
        let (instance, counter) = (u64::from_be_bytes(reader.take()?), u64::from_be_bytes(reader.take()?));
        let mut hello =
            Hello { instance, counter, port, ports: Vec::with_capacity(ports), heard: Vec::with_capacity(heard) };
        for _ in 0..ports {
            let mac = Mac(reader.take()?);
            if !mac.is_unicast() || hello.ports.iter().any(|other| other.mac == mac) {
                return Err(HelloError::Address);
            }
            let [usable] = reader.take()?;
            if usable > 1 {
                return Err(HelloError::Range);
            }
            hello.ports.push(HelloPort { mac, usable: usable == 1, speed_mbit_s: u32::from_be_bytes(reader.take()?) });
        }
        for _ in 0..heard {
            let host = Mac(reader.take()?);
            let instance = u64::from_be_bytes(reader.take()?);
            hello.heard.push(Heard { host, instance, ports: u16::from_be_bytes(reader.take()?) });
        }
        if reader.0.is_empty() { Ok(hello) } else { Err(HelloError::Length) }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], HelloError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(HelloError::Length)?;
        self.0 = rest;
        Ok(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_hello() -> impl Strategy<Value = Hello> {
        let mac = any::<[u8; 5]>();
        let port = (any::<bool>(), any::<u32>());
        let ports = prop::collection::vec(port, 2..=MAX_PORTS);
        let heard = (mac, any::<u64>(), any::<u16>());
        (any::<u64>(), any::<u64>(), any::<prop::sample::Index>(), ports, prop::collection::vec(heard, 0..=MAX_HEARD))
            .prop_map(|(instance, counter, port, ports, heard)| Hello {
                instance,
                counter,
                port: port.index(ports.len()),
                ports: (0..)
                    .zip(ports)
                    .map(|(number, (usable, speed_mbit_s))| HelloPort {
                        mac: Mac([2, 0, 0, 0, 0, number]),
                        usable,
                        speed_mbit_s,
                    })
                    .collect(),
                heard: heard
                    .into_iter()
                    .map(|([a, b, c, d, e], instance, ports)| Heard { host: Mac([2, a, b, c, d, e]), instance, ports })
                    .collect(),
            })
    }

    proptest! {
        #[test]
        fn bytes_and_back(hello in any_hello()) {
            let bytes = hello.encode();
            prop_assert!(bytes.len() <= MAX_HELLO_BYTES);
            prop_assert_eq!(Hello::decode(&bytes), Ok(hello));
        }

        #[test]
        fn cut_or_lengthened_bytes_are_refused(hello in any_hello(), cut in any::<prop::sample::Index>()) {
            let mut bytes = hello.encode();
            prop_assert!(Hello::decode(&bytes[..cut.index(bytes.len())]).is_err());
            bytes.push(0);
            prop_assert_eq!(Hello::decode(&bytes), Err(HelloError::Length));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), good in any_hello(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let _ = Hello::decode(&bytes);
            let mut flipped = good.encode();
            let at = at.index(flipped.len());
            flipped[at] ^= byte;
            if let Ok(hello) = Hello::decode(&flipped) {
                prop_assert_eq!(hello.encode(), flipped);
            }
        }
    }

    #[test]
    fn bounds_are_kept() {
        let port = |n: u8| HelloPort { mac: Mac([2, 0, 0, 0, 0, n]), usable: true, speed_mbit_s: 0 };
        let hello = |ports: u8| Hello {
            instance: 1,
            counter: 1,
            port: 0,
            ports: (0..ports).map(port).collect(),
            heard: vec![],
        };
        assert_eq!(Hello::decode(&hello(1).encode()), Err(HelloError::Range));
        assert!(Hello::decode(&hello(2).encode()).is_ok() && Hello::decode(&hello(16).encode()).is_ok());
        assert_eq!(Hello::decode(&Hello { port: 2, ..hello(2) }.encode()), Err(HelloError::Range));
        let twice = Hello { ports: vec![port(1), port(1)], ..hello(2) };
        assert_eq!(Hello::decode(&twice.encode()), Err(HelloError::Address));
        let mut bytes = hello(2).encode();
        bytes[7] = MAX_HEARD as u8 + 1;
        assert_eq!(Hello::decode(&bytes), Err(HelloError::Range));
        bytes[4] = 2;
        assert_eq!(Hello::decode(&bytes), Err(HelloError::Magic));
    }
}

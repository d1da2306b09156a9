//! Records against an oracle: the bytes that one side writes are those that the other one reads.

use super::cipher::Cipher;
use super::keys::{Protection, SessionSecret};
use super::layer::RecordLayer;
use super::record::MAX_PLAINTEXT_BYTES;
use multirail_proto::rng::Rng;
use multirail_proto::session::Role;
use multirail_testing::for_seeds;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

/// The two ends of a connection.
fn pair(cipher: Cipher) -> (RecordLayer, RecordLayer) {
    let secret = SessionSecret::new([7; 32], Some(cipher));
    let end = |role| match secret.connection(role, b"what was said") {
        Protection::Sealed(records) => *records,
        Protection::Plaintext => unreachable!("there is a cipher"),
    };
    (end(Role::Dialler), end(Role::Listener))
}

fn blocked<T>() -> io::Result<T> {
    Err(ErrorKind::WouldBlock.into())
}

/// A socket's buffer between the two ends, which takes and gives as much as a test wants.
#[derive(Default)]
struct Wire(VecDeque<u8>);

impl Wire {
    fn take(&mut self, bytes: &[u8], most: usize) -> io::Result<usize> {
        let count = bytes.len().min(most);
        self.0.extend(&bytes[..count]);
        if count == 0 { blocked() } else { Ok(count) }
    }

    fn give(&mut self, into: &mut [u8], most: usize) -> io::Result<usize> {
        let count = into.len().min(most).min(self.0.len());
        into.iter_mut().zip(self.0.drain(..count)).for_each(|(to, from)| *to = from);
        if count == 0 { blocked() } else { Ok(count) }
    }
}

/// Writes as much of `bytes` as the layer takes while the socket takes `most` at a time, `calls`
/// times.
fn write(from: &mut RecordLayer, wire: &mut Wire, bytes: &[u8], most: usize, calls: usize) -> usize {
    let (mut left, cut) = (calls, bytes.len() / 3);
    let parts = [IoSlice::new(&bytes[..cut]), IoSlice::new(&bytes[cut..])];
    let written = from.write(
        &parts,
        40_000,
        || true,
        |sealed| match left.checked_sub(1) {
            None => blocked(),
            Some(rest) => {
                left = rest;
                wire.take(sealed, most)
            }
        },
    );
    match written {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        written => written.unwrap(),
    }
}

/// Reads once into two parts of these lengths.
fn read(to: &mut RecordLayer, wire: &mut Wire, lengths: [usize; 2], most: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; lengths[0] + lengths[1]];
    let (first, second) = buffer.split_at_mut(lengths[0]);
    let parts = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
    let count = to.read(parts, |room| {
        assert!(room.len() > MAX_PLAINTEXT_BYTES, "there is room for a whole record");
        wire.give(room, most)
    })?;
    buffer.truncate(count);
    Ok(buffer)
}

/// Whatever a socket takes and gives at a time, the bytes arrive in their order, and only bytes of
/// records that are on the wire as a whole count as written.
#[test]
fn all_bytes_arrive_in_order() {
    for_seeds(200, |seed| {
        let rng = &mut Rng::new(seed);
        let cipher = if rng.below(2) == 0 { Cipher::Aes128Gcm } else { Cipher::ChaCha20Poly1305 };
        let (mut from, mut to) = pair(cipher);
        let message: Vec<u8> = (0..rng.below(400_000)).map(|_| rng.below(256) as u8).collect();
        let (mut wire, mut written, mut got) = (Wire::default(), 0, Vec::new());
        for turn in 0.. {
            assert!(turn < 1_000_000, "it does not come to an end");
            if got.len() == message.len() {
                break;
            }
            if rng.below(2) == 0 && written < message.len() {
                let end = message.len().min(written + 1 + rng.below(100_000) as usize);
                // What was sealed is not sealed again, so the next call begins with the same bytes.
                let end = if from.has_sealed() { message.len() } else { end };
                written += write(
                    &mut from,
                    &mut wire,
                    &message[written..end],
                    1 + rng.below(50_000) as usize,
                    rng.below(9) as usize,
                );
            }
            let lengths = [rng.below(40_000) as usize, 1 + rng.below(5000) as usize];
            match read(&mut to, &mut wire, lengths, 1 + rng.below(60_000) as usize) {
                Ok(bytes) => got.extend(bytes),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            assert!(got.len() <= message.len() && got == message[..got.len()], "other bytes");
            assert!(got.len() <= written, "{} bytes were read, and {written} count as written", got.len());
        }
        assert_eq!(written, message.len());
        assert!(!to.is_readable() && !from.has_sealed());
    });
}

/// A bit that is flipped, a record that is missing, repeated or out of order: nothing after it opens.
#[test]
fn a_changed_record_ends_the_connection() {
    for_seeds(300, |seed| {
        let rng = &mut Rng::new(seed);
        let (mut from, mut to) = pair(Cipher::Aes128Gcm);
        let count = 2 + rng.below(6) as usize;
        let mut records: Vec<Vec<u8>> = (0..count)
            .map(|number| {
                let mut wire = Wire::default();
                let bytes = vec![number as u8; 1 + rng.below(3000) as usize];
                assert_eq!(write(&mut from, &mut wire, &bytes, usize::MAX, 9), bytes.len());
                wire.0.into()
            })
            .collect();
        let at = rng.below(count as u64) as usize;
        match rng.below(4) {
            0 => {
                let bit = rng.below(8 * records[at].len() as u64) as usize;
                records[at][bit / 8] ^= 1 << (bit % 8);
            }
            1 if at + 1 < count => drop(records.remove(at)),
            2 => records.insert(at, records[at].clone()),
            _ if at + 1 < count => records.swap(at, at + 1),
            _ => return,
        }
        // A length that was enlarged waits for more, so there is more.
        let more = std::iter::repeat_n(0, 100_000);
        let mut wire = Wire(records.concat().into_iter().chain(more).collect());
        let mut got = Vec::new();
        let error = loop {
            match read(&mut to, &mut wire, [1000, 1000], usize::MAX) {
                Ok(bytes) => got.extend(bytes),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(got.is_sorted() && got.iter().all(|byte| usize::from(*byte) <= at), "bytes after the change");
        let again = read(&mut to, &mut wire, [1000, 1000], usize::MAX).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidData);
    });
}

/// The two directions, two connections of a session and two sessions have different keys.
#[test]
fn a_record_opens_in_one_place_only() {
    let secret = |byte| SessionSecret::new([byte; 32], Some(Cipher::Aes128Gcm));
    let end = |secret: &SessionSecret, role, said: &[u8]| match secret.connection(role, said) {
        Protection::Sealed(records) => *records,
        Protection::Plaintext => unreachable!("there is a cipher"),
    };
    let mut wire = Wire::default();
    write(&mut end(&secret(1), Role::Dialler, b"a"), &mut wire, b"hello", usize::MAX, 1);
    let opened = |mut to: RecordLayer| {
        let mut wire = Wire(wire.0.clone());
        read(&mut to, &mut wire, [100, 100], usize::MAX).ok()
    };
    assert_eq!(opened(end(&secret(1), Role::Listener, b"a")).as_deref(), Some(&b"hello"[..]));
    assert_eq!(opened(end(&secret(1), Role::Dialler, b"a")), None, "reflected");
    assert_eq!(opened(end(&secret(1), Role::Listener, b"b")), None, "another connection");
    assert_eq!(opened(end(&secret(2), Role::Listener, b"a")), None, "another session");
}

/// The test vectors of the reference.
#[test]
fn records_are_those_of_the_reference() {
    let reference = include_str!("../../../../docs/reference/wire.md");
    let (_, vectors) = reference.split_once("Test vectors:").expect("the reference has vectors");
    for (name, cipher) in [("AES-128-GCM", Cipher::Aes128Gcm), ("ChaCha20-Poly1305", Cipher::ChaCha20Poly1305)] {
        let (mut client, _) = pair(cipher);
        let mut wire = Wire::default();
        for word in [b"hello", b"world"] {
            write(&mut client, &mut wire, word, usize::MAX, 1);
        }
        let bytes: Vec<u8> = wire.0.into();
        let line = format!("{name:<18} {}", data_encoding::HEXLOWER.encode(&bytes));
        assert!(vectors.contains(&line), "not in the reference: {line}");
    }
}

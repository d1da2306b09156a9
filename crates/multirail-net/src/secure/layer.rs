//! Records over a connection: what was sealed and not written, what was received and not opened.

use super::record::{BadRecord, Opener, Sealer};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};

/// The most plaintext that is sealed before it is written.
const MAX_BATCH_BYTES: usize = 128 << 10;
/// As much is sealed first if nothing is under way, so that the peer opens records while later ones are
/// sealed. Each batch that follows without a gap is twice as long, which saves system calls.
const FIRST_BATCH_BYTES: usize = 16 << 10;
/// The plaintext of the first records, which fit in a packet, and how much goes in such records. The bytes that
/// measure a new rail are among it: a peer that could open nothing before 16 KiB have come would learn nothing of
/// a slow rail before the session begins.
const SHORT_RECORD_BYTES: usize = 1400;
const IN_SHORT_RECORDS_BYTES: u64 = 64 << 10;
/// After this many bytes, older ones count half in [`RecordLayer::plaintext_share`].
const SHARE_WINDOW_BYTES: u64 = 1 << 20;

/// Both directions of an encrypted connection. It does no I/O: the caller's functions read and write.
#[derive(Debug)]
pub(crate) struct RecordLayer {
    sealer: Sealer,
    opener: Opener,
    /// The first `sealed_bytes` are records that are being written, of which the first `written` are.
    /// The memory is kept for the next ones.
    sealed: Vec<u8>,
    sealed_bytes: usize,
    written: usize,
    /// For each record that the caller was not told to be written: its end in `sealed`, and the length
    /// of its plaintext.
    ends: VecDeque<(usize, usize)>,
    /// How much more plaintext goes in short records.
    short_left_bytes: u64,
    /// How much plaintext the next batch has at most.
    batch_bytes: usize,
    /// Whether the last batch took all that was offered.
    ended: bool,
    /// Plaintext and records of late.
    share: (u64, u64),
}

impl RecordLayer {
    pub(crate) fn new(sealer: Sealer, opener: Opener) -> Self {
        let (sealed, ends) = (Vec::new(), VecDeque::new());
        Self {
            sealer,
            opener,
            sealed,
            sealed_bytes: 0,
            written: 0,
            ends,
            short_left_bytes: IN_SHORT_RECORDS_BYTES,
            batch_bytes: FIRST_BATCH_BYTES,
            ended: true,
            share: (0, 0),
        }
    }

    /// Writes the first bytes of `parts`, about `most_bytes` at most, and returns how many. Those are
    /// in records that were written whole: the peer may have opened them.
    ///
    /// If `write` fails in the middle, for example since a socket is full, what was sealed waits. The
    /// next call goes on with it and ignores its own `parts`, which must begin with the same bytes.
    ///
    /// `is_idle` says whether the peer has everything that was written.
    pub(crate) fn write(
        &mut self,
        parts: &[IoSlice<'_>],
        most_bytes: usize,
        is_idle: impl FnOnce() -> bool,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.ends.is_empty() {
            let offered_bytes = parts.iter().map(|part| part.len()).sum::<usize>().min(most_bytes);
            // A message that is no longer than the first batch needs no question.
            if self.ended && offered_bytes > FIRST_BATCH_BYTES && is_idle() {
                self.batch_bytes = FIRST_BATCH_BYTES;
            }
            self.ended = offered_bytes <= self.batch_bytes;
            self.seal(parts, most_bytes.min(self.batch_bytes));
            self.batch_bytes = (2 * self.batch_bytes).min(MAX_BATCH_BYTES);
        }
        while self.written < self.sealed_bytes {
            match write(&self.sealed[self.written..self.sealed_bytes]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) => {
                    let whole = self.take_written();
                    return if whole > 0 { Ok(whole) } else { Err(error) };
                }
            }
        }
        Ok(self.take_written())
    }

    /// The plaintext of records that were written whole since the last call.
    fn take_written(&mut self) -> usize {
        let mut plaintext = 0;
        while let Some((_, bytes)) = self.ends.front().filter(|(end, _)| *end <= self.written) {
            plaintext += bytes;
            self.ends.pop_front();
        }
        if self.ends.is_empty() {
            (self.sealed_bytes, self.written) = (0, 0);
        }
        plaintext
    }

    fn seal(&mut self, parts: &[IoSlice<'_>], most_bytes: usize) {
        let mut slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let mut taken_bytes = 0;
        while taken_bytes < most_bytes.max(1) {
            let limit = if self.short_left_bytes > 0 { SHORT_RECORD_BYTES } else { usize::MAX };
            let (count, end) = self.sealer.seal(&first(&slices, limit), &mut self.sealed, self.sealed_bytes);
            if count == 0 {
                return;
            }
            self.ends.push_back((end, count));
            self.short_left_bytes = self.short_left_bytes.saturating_sub(count as u64);
            self.share.0 += count as u64;
            self.share.1 += (end - self.sealed_bytes) as u64;
            self.sealed_bytes = end;
            if self.share.1 > SHARE_WINDOW_BYTES {
                self.share = (self.share.0 / 2, self.share.1 / 2);
            }
            taken_bytes += count;
            let mut left = count;
            for slice in &mut slices {
                let taken = left.min(slice.len());
                *slice = &slice[taken..];
                left -= taken;
            }
        }
    }

    /// Whether something was sealed and not written.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The part of written bytes that is plaintext.
    pub(crate) fn plaintext_share(&self) -> f64 {
        match self.share {
            (_, 0) => 1.0,
            (plaintext, records) => plaintext as f64 / records as f64,
        }
    }

    /// Reads whole records into `parts`; 0 is the end of the connection. It fails as `read` does, or
    /// if a record is not the peer's.
    pub(crate) fn read(
        &mut self,
        parts: &mut [IoSliceMut<'_>],
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match self.opener.open(parts) {
                Ok(0) => {}
                Ok(count) => return Ok(count),
                Err(bad @ BadRecord) => return Err(bad.into()),
            }
            match read(self.opener.room())? {
                0 => return Ok(0),
                count => self.opener.filled(count),
            }
        }
    }

    /// Bytes that were received and not read.
    pub(crate) fn held_bytes(&self) -> usize {
        self.opener.held_bytes()
    }

    /// Whether a read returns bytes without reading from the connection.
    pub(crate) fn is_readable(&self) -> bool {
        self.opener.is_readable()
    }
}

/// The first `limit` bytes of `slices`.
fn first<'a>(slices: &[&'a [u8]], limit: usize) -> Vec<&'a [u8]> {
    let mut left = limit;
    let cut = slices.iter().map(|slice| {
        let taken = left.min(slice.len());
        left -= taken;
        &slice[..taken]
    });
    cut.collect()
}

#[cfg(test)]
mod tests {
    use super::super::cipher::{Cipher, SECRET_BYTES};
    use super::*;

    fn layer() -> RecordLayer {
        let secret = [1; SECRET_BYTES];
        RecordLayer::new(Sealer::new(Cipher::Aes128Gcm, secret), Opener::new(Cipher::Aes128Gcm, secret))
    }

    /// The lengths of the batches of a message, in KiB.
    fn batches(layer: &mut RecordLayer, message: &[u8], is_idle: bool) -> Vec<usize> {
        let (mut rest, mut batches) = (message, Vec::new());
        while !rest.is_empty() {
            let written = layer.write(&[IoSlice::new(rest)], usize::MAX, || is_idle, |bytes| Ok(bytes.len())).unwrap();
            batches.push(written >> 10);
            rest = &rest[written..];
        }
        batches
    }

    /// The peer opens the first records of a message while later ones are sealed.
    #[test]
    fn a_message_to_an_idle_peer_begins_with_a_short_write() {
        let mut layer = layer();
        layer.short_left_bytes = 0;
        for _ in 0..2 {
            assert_eq!(batches(&mut layer, &[7; 600 << 10], true), [16, 32, 64, 128, 128, 128, 104]);
        }
    }

    #[test]
    fn a_message_behind_others_goes_out_at_once() {
        let mut layer = layer();
        layer.short_left_bytes = 0;
        assert_eq!(batches(&mut layer, &[7; 64 << 10], true), [16, 32, 16]);
        assert_eq!(batches(&mut layer, &[7; 64 << 10], false), [64]);
        assert_eq!(batches(&mut layer, &[7; 64 << 10], true), [16, 32, 16]);
    }

    /// A peer opens what has come of the first bytes, packet by packet.
    #[test]
    fn a_connection_begins_with_records_of_a_packet() {
        let mut layer = layer();
        let (message, mut sent, mut wire) = (vec![7; 100 << 10], 0, Vec::new());
        while sent < message.len() {
            let write = |bytes: &[u8]| {
                wire.extend_from_slice(bytes);
                Ok(bytes.len())
            };
            sent += layer.write(&[IoSlice::new(&message[sent..])], usize::MAX, || true, write).unwrap();
        }
        let mut peer = self::layer();
        let (mut opened, mut packets) = (0, wire.chunks(1448));
        let mut buffer = vec![0; message.len()];
        for packet in 1..=45 {
            let mut bytes = packets.next().unwrap();
            loop {
                let read = |room: &mut [u8]| {
                    let count = bytes.len().min(room.len());
                    room[..count].copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
                };
                match peer.read(&mut [IoSliceMut::new(&mut buffer)], read) {
                    Ok(count) => opened += count,
                    Err(_) => break,
                }
            }
            assert!(opened >= (packet - 1) * SHORT_RECORD_BYTES, "{opened} bytes after {packet} packets");
        }
    }
}

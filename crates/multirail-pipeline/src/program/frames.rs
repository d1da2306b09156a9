//! Buffers on a pipe: each after its length as a little-endian `u32`.

use crate::edge::Buffer;
use std::io::{self, ErrorKind, Read, Write};

/// Size of a length in bytes.
const PREFIX_BYTES: usize = 4;

/// Splits what a program writes into buffers.
#[derive(Debug, Default)]
pub(super) struct Reading {
    prefix: [u8; PREFIX_BYTES],
    prefix_has: usize,
    body: Option<(Buffer, usize)>,
    /// The pipe has ended.
    pub is_over: bool,
}

/// A buffer that is being written to a program.
#[derive(Debug)]
pub(super) struct Writing {
    prefix: [u8; PREFIX_BYTES],
    body: Buffer,
    done: usize,
}

/// Why a program's output cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("reading its output failed: {0}")]
    Io(io::Error),
    #[error("it wrote the length {bytes} before a buffer, and the group's limit is {limit_bytes}")]
    TooLong { bytes: u32, limit_bytes: u64 },
}

impl Reading {
    /// The next buffer, if it is complete. An incomplete one is kept.
    pub(super) fn next(
        &mut self,
        from: &mut impl Read,
        limit_bytes: u64,
        memory: impl FnOnce(usize) -> Buffer,
    ) -> Result<Option<Buffer>, ReadError> {
        while !self.is_over && self.prefix_has < PREFIX_BYTES {
            match from.read(&mut self.prefix[self.prefix_has..]) {
                Ok(0) => self.is_over = true,
                Ok(read) => self.prefix_has += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        if self.prefix_has < PREFIX_BYTES {
            return Ok(None);
        }
        let bytes = u32::from_le_bytes(self.prefix);
        if u64::from(bytes) > limit_bytes {
            return Err(ReadError::TooLong { bytes, limit_bytes });
        }
        let of = bytes as usize;
        let (body, _) = self.body.get_or_insert_with(|| (memory(of), of));
        if body.len() < of && !self.is_over {
            let missing = of - body.len();
            // `read_to_end` leaves what it read before an error in the body.
            match from.take(missing as u64).read_to_end(body) {
                Ok(_) => self.is_over = body.len() < of,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        if body.len() < of {
            return Ok(None);
        }
        self.prefix_has = 0;
        Ok(self.body.take().map(|(body, _)| body))
    }

    /// Bytes of an incomplete buffer that have arrived, and its size, both with the length.
    pub(super) fn part(&self) -> Option<(usize, usize)> {
        match &self.body {
            Some((body, of)) => Some((body.len() + PREFIX_BYTES, of + PREFIX_BYTES)),
            None => (self.prefix_has > 0).then_some((self.prefix_has, PREFIX_BYTES)),
        }
    }

    /// Bytes of the current buffer that have arrived, to see whether there is progress.
    pub(super) fn has(&self) -> usize {
        self.prefix_has + self.body.as_ref().map_or(0, |(body, _)| body.len())
    }
}

impl Writing {
    /// Returns `None` if the body is too long for its prefix.
    pub(super) fn new(body: Buffer) -> Option<Self> {
        let bytes = u32::try_from(body.len()).ok()?;
        Some(Self { prefix: bytes.to_le_bytes(), body, done: 0 })
    }

    /// Writes what there is room for. Returns whether all is written.
    pub(super) fn go_on(&mut self, to: &mut impl Write) -> io::Result<bool> {
        let all = PREFIX_BYTES + self.body.len();
        while self.done < all {
            let parts = [
                io::IoSlice::new(&self.prefix[self.done.min(PREFIX_BYTES)..]),
                io::IoSlice::new(&self.body[self.done.saturating_sub(PREFIX_BYTES)..]),
            ];
            match to.write_vectored(&parts) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.done += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Bytes that are written, with the length.
    pub(super) fn done(&self) -> usize {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pipe that accepts and returns a few bytes at a time.
    struct Trickle {
        bytes: Vec<u8>,
        at: usize,
        steps: Vec<usize>,
        turn: usize,
        ends: bool,
    }

    impl Trickle {
        fn step(&mut self) -> usize {
            self.turn += 1;
            self.steps[self.turn % self.steps.len()]
        }
    }

    impl Read for Trickle {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let left = self.bytes.len() - self.at;
            let some = self.step().min(left).min(into.len());
            if some == 0 && !(left == 0 && self.ends) {
                return Err(ErrorKind::WouldBlock.into());
            }
            into[..some].copy_from_slice(&self.bytes[self.at..self.at + some]);
            self.at += some;
            Ok(some)
        }
    }

    impl Write for Trickle {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            match self.step().min(from.len()) {
                0 => Err(ErrorKind::WouldBlock.into()),
                some => {
                    self.bytes.extend_from_slice(&from[..some]);
                    Ok(some)
                }
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn buffers_come_through_whatever_the_pipe_does(
            lengths in prop::collection::vec(0usize..300, 0..10),
            steps in prop::collection::vec(0usize..40, 1..10).prop_filter("something moves", |s| s.iter().any(|s| *s > 0)),
            cut in 0usize..3000,
        ) {
            let mut pipe = Trickle { bytes: vec![], at: 0, steps, turn: 0, ends: true };
            let bodies: Vec<Vec<u8>> = lengths.iter().map(|l| (0..*l).map(|i| (i * l) as u8).collect()).collect();
            for body in &bodies {
                let mut writing = Writing::new(Buffer::from(body.clone())).unwrap();
                while !writing.go_on(&mut pipe).unwrap() {}
            }
            pipe.bytes.truncate(cut);
            let (all, has) = (lengths.iter().map(|l| l + 4).sum::<usize>(), pipe.bytes.len());
            let (mut reading, mut read) = (Reading::default(), Vec::new());
            while !reading.is_over {
                let next = reading.next(&mut pipe, 300, |bytes| Buffer::from(Vec::with_capacity(bytes))).unwrap();
                read.extend(next.map(Buffer::into_vec));
            }
            prop_assert!(bodies.starts_with(&read));
            let whole: usize = read.iter().map(|b| b.len() + 4).sum();
            prop_assert_eq!(reading.part().map_or(0, |(has, _)| has), has - whole);
            prop_assert_eq!(has == all, read.len() == bodies.len());
        }
    }

    #[test]
    fn a_length_beyond_the_limit_allocates_nothing() {
        for (prefix, good) in [(100u32, true), (101, false), (u32::MAX, false)] {
            let mut pipe = io::Cursor::new(prefix.to_le_bytes());
            let mut asked = 0;
            let next = Reading::default().next(&mut pipe, 100, |bytes| {
                asked = bytes;
                Buffer::default()
            });
            assert_eq!((next.is_ok(), asked), (good, if good { 100 } else { 0 }));
        }
    }
}

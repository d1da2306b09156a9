//! A frame as it arrives on a link: the bytes of a block go straight to where its piece is put together.

use super::member::Member;
use super::store::Store;
use super::wire::{BlockHead, MAX_BLOCK_BYTES, MAX_FRAME_BYTES, tag};
use crate::error::{Error, Result};
use crate::payload::Sink;
use multirail_proto::multicast::MemberId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A whole piece, and where it goes.
type Whole<'a> = (Arc<dyn Store>, &'a [u8]);

/// Frames up to this length are blocks, or no longer than one.
const SHORT_BYTES: u64 = MAX_BLOCK_BYTES as u64 + BlockHead::BYTES as u64;

/// Where one link's frames arrive.
#[derive(Debug)]
pub(super) struct Arrival {
    member: Arc<Member>,
    peer: MemberId,
    /// A frame's first bytes: a block's head.
    head: [u8; BlockHead::BYTES],
    /// The piece that is being put together, then what follows the head of the frame that is arriving. Whether that is the
    /// piece's next block shows when all of it is there; if not, it is moved away.
    buffer: Vec<u8>,
    /// All of a frame that is too long for a block.
    long: Vec<u8>,
    frame_bytes: usize,
    piece: Option<Piece>,
    heard: Arc<Heard>,
}

/// When something came last.
#[derive(Debug)]
pub(super) struct Heard {
    began: Instant,
    /// Milliseconds since then.
    last: AtomicU64,
}

impl Default for Heard {
    fn default() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Heard {
    fn note(&self) {
        self.last.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// How long ago that was.
    pub fn silence(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// A piece that has begun to arrive.
#[derive(Debug)]
struct Piece {
    transfer: u32,
    piece: u32,
    arrived_bytes: usize,
    piece_bytes: usize,
    /// `None`: it is thrown away.
    store: Option<Arc<dyn Store>>,
}

/// What has arrived.
pub(super) enum Frame<'a> {
    Control(&'a [u8]),
    Manifest(Vec<u8>),
    Block { head: BlockHead, bytes: u64 },
}

impl Arrival {
    pub fn new(member: Arc<Member>, peer: MemberId, heard: Arc<Heard>) -> Self {
        let head = [0; BlockHead::BYTES];
        Self { member, peer, head, buffer: Vec::new(), long: Vec::new(), frame_bytes: 0, piece: None, heard }
    }

    fn is_long(&self) -> bool {
        self.frame_bytes as u64 > SHORT_BYTES
    }

    /// Where the piece ends that is being put together, in the buffer.
    fn piece_end(&self) -> usize {
        self.piece.as_ref().filter(|p| p.store.is_some()).map_or(0, |p| p.arrived_bytes)
    }

    /// The frame that has arrived; an error is the peer's fault.
    pub fn frame(&mut self) -> Result<Frame<'_>, String> {
        let first = if self.is_long() { self.long.first() } else { self.head[..self.frame_bytes.min(1)].first() };
        match first {
            Some(&tag::BLOCK) if self.is_long() || self.frame_bytes <= BlockHead::BYTES => {
                Err(format!("it sends a block in a frame of {} bytes", self.frame_bytes))
            }
            Some(&tag::BLOCK) => {
                let bytes = (self.frame_bytes - BlockHead::BYTES) as u64;
                Ok(Frame::Block { head: BlockHead::decode(&self.head), bytes })
            }
            Some(&tag::CONTROL) => {
                self.gather();
                Ok(Frame::Control(&self.long[1..]))
            }
            Some(&tag::MANIFEST) => {
                self.gather();
                Ok(Frame::Manifest(std::mem::take(&mut self.long)))
            }
            Some(kind) => Err(format!("it sends a frame of kind {kind}")),
            None => Err("it sends an empty frame".to_owned()),
        }
    }

    /// Puts a frame that is no block together.
    fn gather(&mut self) {
        if !self.is_long() {
            let of_head = self.frame_bytes.min(BlockHead::BYTES);
            let end = self.piece_end();
            self.long.clear();
            self.long.extend_from_slice(&self.head[..of_head]);
            self.long.extend_from_slice(&self.buffer[end..end + self.frame_bytes - of_head]);
        }
    }

    /// Adds the block that has arrived to its piece; the piece, if that was its last. An error is the peer's fault.
    pub fn add_block(&mut self, head: BlockHead) -> Result<Option<Whole<'_>>, String> {
        // A sender that forgets a transfer breaks a piece off.
        if self.piece.is_none() || head.offset == 0 {
            let keep = self.member.comes(self.peer, head.transfer, head.piece)?;
            let piece_bytes = self.member.store(head.transfer, head.piece).map_or(0, |(_, bytes)| bytes as usize);
            let BlockHead { transfer, piece, .. } = head;
            self.piece = Some(Piece { transfer, piece, arrived_bytes: 0, piece_bytes, store: keep });
        }
        let Some(current) = &mut self.piece else { return Ok(None) };
        if current.piece_bytes == 0 {
            // Of a transfer that is over: no length is known, so it is taken as it comes.
            self.piece = None;
            return Ok(None);
        }
        let begins = (current.transfer, current.piece, current.arrived_bytes);
        if begins != (head.transfer, head.piece, head.offset as usize) {
            return Err(format!("it sends piece {} in the middle of piece {}", head.piece, current.piece));
        }
        current.arrived_bytes += self.frame_bytes - BlockHead::BYTES;
        if current.arrived_bytes > current.piece_bytes {
            return Err(format!("it sends more of piece {} than there is", head.piece));
        }
        if current.arrived_bytes < current.piece_bytes {
            return Ok(None);
        }
        match self.piece.take().and_then(|p| p.store.map(|s| (s, p.piece_bytes))) {
            Some((store, bytes)) => Ok(Some((store, &self.buffer[..bytes]))),
            None => Ok(None),
        }
    }

    /// The piece is worked off.
    pub fn release(&mut self) {
        self.member.buffers.put(std::mem::take(&mut self.buffer));
    }
}

impl Sink for Arrival {
    fn begin(&mut self, total_bytes: u64) -> Result<()> {
        if total_bytes > MAX_FRAME_BYTES {
            return Err(Error::Protocol(format!("a frame of {total_bytes} bytes")));
        }
        self.frame_bytes = total_bytes as usize;
        if self.is_long() {
            self.long.resize(self.frame_bytes, 0);
            return Ok(());
        }
        if self.buffer.capacity() == 0 {
            self.buffer = self.member.buffers.take();
        }
        let end = self.piece_end() + self.frame_bytes.saturating_sub(BlockHead::BYTES);
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        Ok(())
    }

    fn space(&mut self, _: usize, offset: u64, want: usize) -> &mut [u8] {
        let at = offset as usize;
        if self.is_long() {
            return &mut self.long[at..at + want];
        }
        if at < BlockHead::BYTES {
            return &mut self.head[at..BlockHead::BYTES.min(at + want)];
        }
        let at = self.piece_end() + at - BlockHead::BYTES;
        &mut self.buffer[at..at + want]
    }

    fn filled(&mut self, _: usize, _: u64, _: usize) {
        self.heard.note();
    }
}

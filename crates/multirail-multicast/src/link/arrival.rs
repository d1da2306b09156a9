//! A frame as it arrives on a link. The bytes of a block go straight to their place in the piece.

use super::owner::LinkOwner;
use crate::store::Store;
use crate::wire::{BlockHead, MAX_BLOCK_BYTES, MAX_FRAME_BYTES, tag};
use multirail_net::error::{Error, Result};
use multirail_net::payload::Sink;
use multirail_proto::multicast::MemberId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A complete piece and the store that takes it.
type Whole<'a> = (Arc<dyn Store>, &'a [u8]);

/// Longer frames are not blocks.
const SHORT_BYTES: u64 = MAX_BLOCK_BYTES as u64 + BlockHead::BYTES as u64;

/// The sink for the frames of one link.
#[derive(Debug)]
pub(super) struct Arrival {
    owner: Arc<dyn LinkOwner>,
    peer: MemberId,
    /// A frame's first bytes: a block's head.
    head: [u8; BlockHead::BYTES],
    /// The blocks of the current piece, then the rest of the arriving frame. A frame other than the
    /// next block is moved to `long`.
    buffer: Vec<u8>,
    /// A frame other than a block.
    long: Vec<u8>,
    frame_bytes: usize,
    piece: Option<PartialPiece>,
    last_arrival: Arc<LastArrival>,
}

/// When bytes arrived last on a link.
#[derive(Debug)]
pub(super) struct LastArrival {
    began: Instant,
    /// Milliseconds from `began` to the last arrival.
    last: AtomicU64,
}

impl Default for LastArrival {
    fn default() -> Self {
        Self { began: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl LastArrival {
    fn note(&self) {
        self.last.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// When that was; the begin of the link if nothing has arrived.
    pub(super) fn at(&self) -> Instant {
        self.began + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// A piece that has begun to arrive.
#[derive(Debug)]
struct PartialPiece {
    transfer: u32,
    piece: u32,
    arrived_bytes: usize,
    piece_bytes: usize,
    /// `None`: the piece is discarded.
    store: Option<Arc<dyn Store>>,
}

/// A frame that has arrived.
pub(super) enum ArrivedFrame<'a> {
    Control(&'a [u8]),
    Manifest(Vec<u8>),
    Block { head: BlockHead, bytes: u64 },
}

impl Arrival {
    pub(super) fn new(owner: Arc<dyn LinkOwner>, peer: MemberId, last_arrival: Arc<LastArrival>) -> Self {
        let head = [0; BlockHead::BYTES];
        Self { owner, peer, head, buffer: Vec::new(), long: Vec::new(), frame_bytes: 0, piece: None, last_arrival }
    }

    fn is_long(&self) -> bool {
        self.frame_bytes as u64 > SHORT_BYTES
    }

    /// Where the current piece ends in the buffer.
    fn piece_end(&self) -> usize {
        self.piece.as_ref().filter(|p| p.store.is_some()).map_or(0, |p| p.arrived_bytes)
    }

    /// The frame that has arrived. An error says what the peer did wrong.
    pub(super) fn frame(&mut self) -> Result<ArrivedFrame<'_>, String> {
        let first = if self.is_long() { self.long.first() } else { self.head[..self.frame_bytes.min(1)].first() };
        match first {
            Some(&tag::BLOCK) if self.is_long() || self.frame_bytes <= BlockHead::BYTES => {
                Err(format!("it sent a block in a frame of {} bytes", self.frame_bytes))
            }
            Some(&tag::BLOCK) => {
                let bytes = (self.frame_bytes - BlockHead::BYTES) as u64;
                Ok(ArrivedFrame::Block { head: BlockHead::decode(&self.head), bytes })
            }
            Some(&tag::CONTROL) => {
                self.gather();
                Ok(ArrivedFrame::Control(&self.long[1..]))
            }
            Some(&tag::MANIFEST) => {
                self.gather();
                Ok(ArrivedFrame::Manifest(std::mem::take(&mut self.long)))
            }
            Some(kind) => Err(format!("it sent a frame of unknown kind {kind}")),
            None => Err("it sent an empty frame".to_owned()),
        }
    }

    /// Moves a frame other than a block to `long`.
    fn gather(&mut self) {
        if !self.is_long() {
            let of_head = self.frame_bytes.min(BlockHead::BYTES);
            let end = self.piece_end();
            self.long.clear();
            self.long.extend_from_slice(&self.head[..of_head]);
            self.long.extend_from_slice(&self.buffer[end..end + self.frame_bytes - of_head]);
        }
    }

    /// Adds the block that has arrived to its piece. Returns the piece if the block was its last.
    /// An error says what the peer did wrong.
    pub(super) fn add_block(&mut self, head: BlockHead) -> Result<Option<Whole<'_>>, String> {
        // A sender that ends a transfer stops within a piece.
        if self.piece.is_none() || head.offset == 0 {
            let keep = self.owner.piece_start(self.peer, head.transfer, head.piece);
            let keep = keep.map_err(|fault| fault.to_string())?;
            let piece_bytes = self.owner.store(head.transfer, head.piece).map_or(0, |(_, bytes)| bytes as usize);
            let BlockHead { transfer, piece, .. } = head;
            self.piece = Some(PartialPiece { transfer, piece, arrived_bytes: 0, piece_bytes, store: keep });
        }
        let Some(current) = &mut self.piece else { return Ok(None) };
        if current.piece_bytes == 0 {
            // The transfer is over and the length of the piece unknown: blocks are discarded one by
            // one.
            self.piece = None;
            return Ok(None);
        }
        let begins = (current.transfer, current.piece, current.arrived_bytes);
        if begins != (head.transfer, head.piece, head.offset as usize) {
            return Err(format!("it sent piece {} within piece {}", head.piece, current.piece));
        }
        current.arrived_bytes += self.frame_bytes - BlockHead::BYTES;
        if current.arrived_bytes > current.piece_bytes {
            return Err(format!("it sent more bytes of piece {} than the piece has", head.piece));
        }
        if current.arrived_bytes < current.piece_bytes {
            return Ok(None);
        }
        match self.piece.take().and_then(|p| p.store.map(|s| (s, p.piece_bytes))) {
            Some((store, bytes)) => Ok(Some((store, &self.buffer[..bytes]))),
            None => Ok(None),
        }
    }

    /// Gives the buffer of a stored piece back.
    pub(super) fn release(&mut self) {
        self.owner.put_buffer(std::mem::take(&mut self.buffer));
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
            self.buffer = self.owner.take_buffer();
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
        self.last_arrival.note();
    }
}

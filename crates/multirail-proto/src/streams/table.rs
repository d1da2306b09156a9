//! All streams of one side, and the frames between the two sides.

use super::frame::{HEADER_BYTES, MAX_DATA_BYTES, StreamFrame, data_header};
use super::limits::{GROWTH_PART, MAX_EARLY_BYTES, MAX_GROWTH_BYTES, MAX_RESETS, MAX_STREAMS};
use super::receive_half::ReceiveHalf;
use super::schedule::{Schedule, Turn};
use super::send_half::SendHalf;
use super::stream_id::StreamId;
use super::violation::StreamViolation;
use crate::session::Role;
use std::collections::{BTreeMap, VecDeque};

/// Why a stream was reset. Users of streams give the codes their meaning, except for
/// [`ResetCode::TOO_MANY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetCode(pub u8);

impl ResetCode {
    /// The side that reset it does not want it any more.
    pub const DROPPED: Self = Self(0);
    /// The side that reset it has as many streams as it can have.
    pub const TOO_MANY: Self = Self(1);
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent {
    /// The peer has opened a stream.
    Opened(StreamId),
    /// A read of this stream that waited may not wait any more.
    Readable(StreamId),
    /// A write of this stream that waited may not wait any more.
    Writable(StreamId),
}

/// What there is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome<'a> {
    /// At least one byte.
    Bytes(&'a [u8]),
    /// The peer has ended its direction, and everything was read.
    End,
    /// The stream is over.
    Reset(ResetCode),
    /// Nothing has arrived; [`StreamEvent::Readable`] will follow.
    Wait,
}

/// What a write has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The first bytes were taken, at least one if there were any.
    Bytes(usize),
    /// This side has ended its direction before.
    Ended,
    /// The stream is over.
    Reset(ResetCode),
    /// There is no room; [`StreamEvent::Writable`] will follow.
    Wait,
}

#[derive(Debug)]
struct Stream {
    send: SendHalf,
    receive: ReceiveHalf,
    turn: Turn,
    reset: Option<ResetCode>,
    /// The application has done with it. It is kept until its last bytes are sent.
    is_released: bool,
    reader_waits: bool,
    writer_waits: bool,
}

/// The streams of one side of a session. See the [module](super).
#[derive(Debug)]
pub struct Streams {
    /// The next stream that this side opens.
    next_own: StreamId,
    /// The lowest number that no stream of the peer has had.
    next_peer: StreamId,
    own_count: usize,
    /// No stream of the peer is accepted.
    refuses_new: bool,
    table: BTreeMap<StreamId, Stream>,
    schedule: Schedule,
    /// Limits that the peer must be told, one a stream.
    credits: BTreeMap<StreamId, u64>,
    /// Streams that the peer must learn are over.
    resets: VecDeque<(StreamId, ResetCode)>,
    events: VecDeque<StreamEvent>,
    early_bytes: u64,
    growth_bytes: u64,
    /// See [`Streams::is_bulk`].
    is_bulk: bool,
}

impl Streams {
    /// A side without streams.
    pub fn new(role: Role) -> Self {
        let (own, peer) = match role {
            Role::Dialler => (0, 1),
            Role::Listener => (1, 0),
        };
        Self {
            next_own: StreamId::from_number(own),
            next_peer: StreamId::from_number(peer),
            own_count: 0,
            refuses_new: false,
            table: BTreeMap::new(),
            schedule: Schedule::default(),
            credits: BTreeMap::new(),
            resets: VecDeque::new(),
            events: VecDeque::new(),
            early_bytes: 0,
            growth_bytes: 0,
            is_bulk: false,
        }
    }

    /// Opens a stream; `None` if this side has opened [`MAX_STREAMS`] that are not over.
    ///
    /// The peer learns of it when something was written, or it was finished.
    pub fn open(&mut self) -> Option<StreamId> {
        if self.own_count >= MAX_STREAMS {
            return None;
        }
        let stream = self.next_own;
        self.next_own = stream.next();
        self.own_count += 1;
        self.table.insert(stream, Stream::new(stream));
        Some(stream)
    }

    /// Refuses all streams that the peer opens from now on.
    pub fn refuse_new(&mut self) {
        self.refuses_new = true;
    }

    /// The number of streams that are not over, or not released.
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Writes the first of `bytes`, as many as there is room for.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> WriteOutcome {
        let Some(entry) = self.table.get_mut(&stream) else { return WriteOutcome::Ended };
        if let Some(code) = entry.reset {
            return WriteOutcome::Reset(code);
        }
        match entry.send.write(bytes) {
            None => WriteOutcome::Ended,
            Some(0) if !bytes.is_empty() => {
                entry.writer_waits = true;
                WriteOutcome::Wait
            }
            Some(count) => {
                entry.activate(stream, &mut self.schedule);
                WriteOutcome::Bytes(count)
            }
        }
    }

    /// Ends this side's direction, behind what was written.
    pub fn finish(&mut self, stream: StreamId) {
        if let Some(entry) = self.table.get_mut(&stream) {
            entry.send.finish();
            entry.activate(stream, &mut self.schedule);
        }
    }

    /// Ends both directions at once. What was not sent or not read is lost.
    pub fn reset(&mut self, stream: StreamId, code: ResetCode) {
        if let Some(entry) = self.table.get_mut(&stream).filter(|entry| entry.reset.is_none()) {
            entry.reset = Some(code);
            self.resets.push_back((stream, code));
            self.forget_contents(stream);
        }
    }

    /// The next bytes of a stream, not necessarily all that have arrived. [`Streams::consume`] says how
    /// many of them were read.
    pub fn read(&mut self, stream: StreamId) -> ReadOutcome<'_> {
        let Some(entry) = self.table.get_mut(&stream) else { return ReadOutcome::End };
        if let Some(code) = entry.reset {
            return ReadOutcome::Reset(code);
        }
        let bytes = entry.receive.first();
        if !bytes.is_empty() {
            return ReadOutcome::Bytes(bytes);
        }
        if entry.receive.is_read() {
            return ReadOutcome::End;
        }
        entry.reader_waits = true;
        ReadOutcome::Wait
    }

    /// The first `count` of the bytes that [`Streams::read`] has shown were read.
    pub fn consume(&mut self, stream: StreamId, count: usize) {
        let Some(entry) = self.table.get_mut(&stream).filter(|entry| entry.reset.is_none()) else { return };
        entry.receive.consume(count);
        let growth_bytes = entry.receive.growth_bytes();
        if let Some(limit) = entry.receive.grant((MAX_GROWTH_BYTES - self.growth_bytes) / GROWTH_PART) {
            self.growth_bytes += entry.receive.growth_bytes() - growth_bytes;
            self.credits.insert(stream, limit);
        }
    }

    /// How many bytes [`Streams::write`] would take now.
    pub fn room(&mut self, stream: StreamId) -> WriteOutcome {
        let Some(entry) = self.table.get_mut(&stream) else { return WriteOutcome::Ended };
        if let Some(code) = entry.reset {
            return WriteOutcome::Reset(code);
        }
        match entry.send.room_bytes() {
            None => WriteOutcome::Ended,
            Some(0) => {
                entry.writer_waits = true;
                WriteOutcome::Wait
            }
            Some(count) => WriteOutcome::Bytes(count),
        }
    }

    /// The application has done with a stream. What was written is still sent, with an end; if the
    /// peer's direction was not read to its end, the stream is reset instead.
    pub fn release(&mut self, stream: StreamId) {
        let Some(entry) = self.table.get_mut(&stream) else { return };
        if entry.reset.is_none() && !entry.receive.is_read() {
            self.reset(stream, ResetCode::DROPPED);
        } else {
            self.finish(stream);
        }
        if let Some(entry) = self.table.get_mut(&stream) {
            entry.is_released = true;
        }
        self.forget_if_over(stream);
    }

    /// What has changed. Call it until it returns `None`.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// Whether [`Streams::next_message`] would have something to send.
    pub fn is_due(&self) -> bool {
        !self.resets.is_empty() || !self.credits.is_empty() || self.schedule.first().is_some()
    }

    /// Appends frames of up to `most_bytes`, which is at least 64, to `message`. Returns whether there
    /// were any.
    pub fn next_message(&mut self, message: &mut Vec<u8>, most_bytes: usize) -> bool {
        let from = message.len();
        self.is_bulk = self.resets.is_empty() && self.credits.is_empty();
        let mut writer_waits = false;
        let room = |message: &Vec<u8>| (most_bytes + from).saturating_sub(message.len());
        while room(message) >= HEADER_BYTES {
            if let Some((stream, code)) = self.resets.pop_front() {
                StreamFrame::Reset { stream, code: code.0 }.encode(message);
            } else if let Some((stream, limit)) = self.credits.pop_first() {
                StreamFrame::Credit { stream, limit }.encode(message);
            } else {
                break;
            }
        }
        // A frame that only fills up a message would cost more than it carries.
        while room(message) > 2 * HEADER_BYTES {
            let Some(stream) = self.schedule.first() else { break };
            let is_fresh = self.schedule.is_first_fresh();
            let Some(entry) = self.table.get_mut(&stream).filter(|entry| entry.is_due()) else {
                self.schedule.remove_first(self.table.get_mut(&stream).map(|entry| &mut entry.turn));
                continue;
            };
            let most_bytes = (room(message) - HEADER_BYTES).min(MAX_DATA_BYTES).min(entry.turn.left_bytes());
            let header = message.len();
            message.extend_from_slice(&[0; HEADER_BYTES]);
            let (offset, is_end) = entry.send.take(most_bytes, message);
            let count = message.len() - header - HEADER_BYTES;
            message[header..header + HEADER_BYTES].copy_from_slice(&data_header(stream, offset, count, is_end));
            let is_due = entry.is_due();
            self.schedule.sent(&mut entry.turn, HEADER_BYTES + count, is_due);
            self.is_bulk &= !is_fresh;
            if std::mem::take(&mut entry.writer_waits) {
                writer_waits = true;
                self.events.push_back(StreamEvent::Writable(stream));
            }
            self.forget_if_over(stream);
        }
        self.is_bulk &= writer_waits;
        message.len() > from
    }

    /// Whether the last message has only bytes of streams that send for long, and a writer waited for room:
    /// more of them will follow at once.
    pub fn is_bulk(&self) -> bool {
        self.is_bulk
    }

    /// The frames of a message of the peer.
    ///
    /// # Errors
    ///
    /// If the peer has broken the protocol. The session must end then.
    pub fn handle_message(&mut self, mut message: &[u8]) -> Result<(), StreamViolation> {
        while !message.is_empty() {
            let (frame, rest) = StreamFrame::decode(message)?;
            message = rest;
            match frame {
                StreamFrame::Data { stream, offset, bytes, is_end } => {
                    self.handle_data(stream, offset, bytes, is_end)?
                }
                StreamFrame::Credit { stream, limit } => {
                    if let Some(entry) = self.find(stream)? {
                        entry.send.raise_limit(limit);
                        self.activate(stream);
                    }
                }
                StreamFrame::Reset { stream, code } => {
                    if let Some(entry) = self.find(stream)?.filter(|entry| entry.reset.is_none()) {
                        entry.reset = Some(ResetCode(code));
                        self.forget_contents(stream);
                        self.forget_if_over(stream);
                    }
                }
            }
        }
        Ok(())
    }

    fn handle_data(
        &mut self,
        stream: StreamId,
        offset: u64,
        bytes: &[u8],
        is_end: bool,
    ) -> Result<(), StreamViolation> {
        // Streams that are over, and what was under way to them, are forgotten.
        let Some(entry) = self.find(stream)?.filter(|entry| entry.reset.is_none()) else { return Ok(()) };
        let change = entry.receive.insert(offset, bytes, is_end)?;
        let wakes = entry.receive.is_readable() && std::mem::take(&mut entry.reader_waits);
        if wakes {
            self.events.push_back(StreamEvent::Readable(stream));
        }
        self.early_bytes = self.early_bytes + change.added_bytes - change.removed_bytes;
        if self.early_bytes > MAX_EARLY_BYTES {
            return Err(StreamViolation::TooMuchEarly);
        }
        self.forget_if_over(stream);
        Ok(())
    }

    /// The stream of a frame that has arrived; `None` if it is over. The first frame of a stream
    /// opens it, and those that the peer has opened before it.
    fn find(&mut self, stream: StreamId) -> Result<Option<&mut Stream>, StreamViolation> {
        if stream.has_opener_of(self.next_own) {
            if stream >= self.next_own {
                return Err(StreamViolation::NotOpen(stream));
            }
        } else if stream >= self.next_peer {
            if stream.number() - self.next_peer.number() > 4 * MAX_STREAMS as u64 {
                return Err(StreamViolation::TooFarAhead(stream));
            }
            while self.next_peer <= stream {
                self.accept(self.next_peer)?;
                self.next_peer = self.next_peer.next();
            }
        }
        Ok(self.table.get_mut(&stream))
    }

    fn accept(&mut self, stream: StreamId) -> Result<(), StreamViolation> {
        if self.refuses_new || self.table.len() - self.own_count >= MAX_STREAMS {
            if self.resets.len() >= MAX_RESETS {
                return Err(StreamViolation::TooManyRefused);
            }
            self.resets.push_back((stream, ResetCode::TOO_MANY));
            return Ok(());
        }
        self.table.insert(stream, Stream::new(stream));
        self.events.push_back(StreamEvent::Opened(stream));
        Ok(())
    }

    fn activate(&mut self, stream: StreamId) {
        if let Some(entry) = self.table.get_mut(&stream) {
            entry.activate(stream, &mut self.schedule);
        }
    }

    /// Frees what a stream that was reset has, and wakes who waits for it.
    fn forget_contents(&mut self, stream: StreamId) {
        let Some(entry) = self.table.get_mut(&stream) else { return };
        self.early_bytes -= entry.receive.early_bytes();
        self.growth_bytes -= entry.receive.growth_bytes();
        entry.send = SendHalf::new();
        entry.receive = ReceiveHalf::new(stream);
        self.credits.remove(&stream);
        if std::mem::take(&mut entry.reader_waits) {
            self.events.push_back(StreamEvent::Readable(stream));
        }
        if std::mem::take(&mut entry.writer_waits) {
            self.events.push_back(StreamEvent::Writable(stream));
        }
    }

    /// Removes a stream that both the application and the peer have done with.
    fn forget_if_over(&mut self, stream: StreamId) {
        let is_over = |entry: &Stream| {
            entry.is_released && (entry.reset.is_some() || (entry.send.is_finished() && entry.receive.is_read()))
        };
        if self.table.get(&stream).is_some_and(is_over)
            && let Some(entry) = self.table.remove(&stream)
        {
            self.growth_bytes -= entry.receive.growth_bytes();
            self.credits.remove(&stream);
            self.own_count -= usize::from(stream.has_opener_of(self.next_own));
        }
    }
}

impl Stream {
    fn new(stream: StreamId) -> Self {
        Self {
            send: SendHalf::new(),
            receive: ReceiveHalf::new(stream),
            turn: Turn::default(),
            reset: None,
            is_released: false,
            reader_waits: false,
            writer_waits: false,
        }
    }

    fn is_due(&self) -> bool {
        self.reset.is_none() && self.send.is_due()
    }

    fn activate(&mut self, stream: StreamId, schedule: &mut Schedule) {
        if self.is_due() {
            schedule.activate(stream, &mut self.turn);
        }
    }
}

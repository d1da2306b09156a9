//! A link: one session between two members, and the task that sends and receives on it.

use super::arrival::{Arrival, Frame, Heard};
use super::member::{MAX_TRANSFERS, Member};
use super::queue::{Next, Queue};
use super::store::StoreError;
use super::wire::{self, BlockHead, Ends, Item, MAX_STATUS_BYTES, PeerHello, PeerReply};
use crate::service::{self, Request};
use crate::{Error, Session, session};
use multirail_proto::multicast::MemberId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How long a host waits for a link that the other side is making.
const DUPLICATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may take to answer a hello: its invitation may still be on the way.
const REPLY_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a link that ends waits for the peer to have everything.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Buffers that are kept for the next pieces.
const MAX_BUFFERS: usize = 8;

/// A link as its group sees it. Dropping it ends it at once.
#[derive(Debug)]
pub(super) struct LinkHandle {
    number: u64,
    theirs: Ends,
    queue: Queue,
    news: Arc<Notify>,
    heard: Arc<Heard>,
    task: AbortHandle,
    /// Transfers that the peer is ready for, and those that the node was told it is up for.
    ready: BTreeSet<u32>,
    up: BTreeSet<u32>,
    /// Transfers whose manifest went this way.
    told: BTreeSet<u32>,
}

impl LinkHandle {
    /// Starts the task of link `number` to `peer`. It waits for the group's lock, so that it finds the link there.
    pub fn start(member: &Arc<Member>, peer: MemberId, number: u64, session: Session, theirs: Ends) -> Self {
        let news = Arc::new(Notify::new());
        let heard = Arc::new(Heard::default());
        let run = run(member.clone(), peer, number, session, news.clone(), heard.clone());
        let task = member.runtime().spawn(run).abort_handle();
        let (ready, up, told) = Default::default();
        Self { number, theirs, queue: Queue::default(), news, heard, task, ready, up, told }
    }

    /// Which of all links that the host ever had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How long nothing has come.
    pub fn silence(&self) -> Duration {
        self.heard.silence()
    }

    /// Whether a link that the peer makes with `theirs` is to take this one's place: the peer knows that this one is dead.
    pub fn is_older_than(&self, theirs: Ends) -> bool {
        self.theirs.incarnation != theirs.incarnation || self.theirs.downs < theirs.downs
    }

    /// The peer is ready for a transfer. Fails if it is ready for too many.
    pub fn peer_is_ready(&mut self, transfer: u32) -> Result<(), String> {
        if self.ready.len() >= MAX_TRANSFERS && !self.ready.contains(&transfer) {
            return Err("it is ready for too many transfers".to_owned());
        }
        self.ready.insert(transfer);
        Ok(())
    }

    /// Has both sides take part in a transfer, if the peer is ready; whether that is new.
    pub fn join(&mut self, transfer: u32) -> bool {
        self.ready.contains(&transfer) && self.up.insert(transfer)
    }

    /// Whether both sides take part in a transfer.
    pub fn is_up(&self, transfer: u32) -> bool {
        self.up.contains(&transfer)
    }

    /// Whether the manifest has yet to go this way. From now on it has not.
    pub fn tell_manifest(&mut self, transfer: u32) -> bool {
        self.told.insert(transfer)
    }

    pub fn push(&mut self, item: Item) {
        self.queue.push(item);
        self.news.notify_one();
    }

    pub fn push_manifest(&mut self, frame: Arc<Vec<u8>>) {
        self.queue.push_manifest(frame);
        self.news.notify_one();
    }

    pub fn push_piece(&mut self, transfer: u32, piece: u32) {
        self.queue.push_piece(transfer, piece);
        self.news.notify_one();
    }

    pub fn withdraw(&mut self, transfer: u32, piece: u32) {
        self.queue.withdraw(transfer, piece);
    }

    /// Nothing of a transfer is said any more.
    pub fn forget(&mut self, transfer: u32) {
        self.queue.forget(transfer);
        self.ready.remove(&transfer);
        self.up.remove(&transfer);
        self.told.remove(&transfer);
    }

    /// Ends the link after what is queued.
    pub fn close(&mut self) {
        self.queue.close();
        self.news.notify_one();
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why a link ends.
#[derive(Debug)]
enum End {
    /// One of the two wanted it.
    Closed,
    /// The network, or the peer's process.
    Lost(Error),
    /// The peer broke the rules.
    Fault(String),
    /// This host's disk.
    Own(StoreError),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        match error {
            Error::Closed => End::Closed,
            Error::Protocol(what) => End::Fault(format!("it broke the protocol: {what}")),
            error => End::Lost(error),
        }
    }
}

/// Asks `peer` for a link, and tells the group what came of it.
pub(super) async fn dial(member: Arc<Member>, peer: MemberId) {
    let address = member.hosts[peer as usize].address.clone();
    match dial_once(&member, peer, &address).await {
        Ok((session, PeerReply::Welcome(theirs))) => member.link_up(peer, session, theirs, true),
        Ok((session, reply)) => {
            drop(session);
            match reply {
                PeerReply::Refused(why) => member.dial_failed(peer, &why),
                PeerReply::UnknownGroup => member.dial_failed(peer, "it knows nothing of the group"),
                _ => {
                    tokio::time::sleep(DUPLICATE_TIMEOUT).await;
                    member.dial_failed(peer, "it was to make the link itself, and has not");
                }
            }
        }
        Err(error) => member.dial_failed(peer, &error.to_string()),
    }
}

async fn dial_once(member: &Arc<Member>, peer: MemberId, address: &str) -> Result<(Session, PeerReply), Error> {
    let mut session = Session::connect(address, member.config.clone()).await?;
    let hello = PeerHello { group: member.id, from: member.me, ends: member.ends(peer) };
    service::send(&mut session, &Request::MulticastPeer(hello)).await?;
    let reply = wire::receive_body(session.split().1, MAX_STATUS_BYTES);
    let reply = match tokio::time::timeout(REPLY_TIMEOUT, reply).await {
        Ok(reply) => reply?,
        Err(_) => return Err(Error::HandshakeTimeout { peer: address.to_owned(), after: REPLY_TIMEOUT }),
    };
    Ok((session, reply))
}

/// Answers a hello, in the group's runtime: the session becomes a link, or ends.
pub(super) async fn admit(member: Arc<Member>, mut session: Session, hello: PeerHello) {
    let reply = member.admits(hello.from, hello.ends);
    let sent = service::send(&mut session, &reply).await;
    match (sent, reply) {
        (Ok(()), PeerReply::Welcome(_)) => {
            session.set_give_up_after(member.config.give_up_after);
            member.link_up(hello.from, session, hello.ends, false);
        }
        _ => drop(tokio::time::timeout(CLOSE_TIMEOUT, session.close()).await),
    }
}

async fn run(member: Arc<Member>, peer: MemberId, number: u64, session: Session, news: Arc<Notify>, heard: Arc<Heard>) {
    let (mut sender, mut receiver) = session.into_split();
    let end = tokio::select! {
        Err(end) = send_all(&member, peer, number, &mut sender, &news) => end,
        Err(end) = receive_all(&member, peer, &mut receiver, heard) => end,
    };
    match end {
        End::Closed => member.link_down(peer, number, "closed", false),
        End::Lost(error) => member.link_down(peer, number, &error.to_string(), false),
        End::Fault(what) => member.link_down(peer, number, &what, true),
        End::Own(error) => member.fail(error.to_string()),
    }
}

type Never = std::convert::Infallible;

/// Sends what is queued, as long as there is somebody to send it to.
async fn send_all(
    member: &Arc<Member>,
    peer: MemberId,
    number: u64,
    sender: &mut session::Sender,
    news: &Notify,
) -> Result<Never, End> {
    let mut frame = Vec::new();
    loop {
        let next = member.with_link(peer, number, LinkHandle::next).ok_or(End::Closed)??;
        match next {
            Next::Control(frame) => sender.send(&frame).await?,
            Next::Manifest(frame) => sender.send(&frame).await?,
            Next::Block(head) => {
                let left = send_block(member, sender, head, &mut frame).await?;
                let sent_bytes = (frame.len() - BlockHead::BYTES) as u32;
                member.with_link(peer, number, |l| l.queue.advance((left > 0).then_some(sent_bytes)));
                if left == 0 {
                    member.sent(peer, head.transfer, head.piece);
                }
            }
            Next::Idle => news.notified().await,
            Next::Close => {
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, sender.finish()).await;
                return Err(End::Closed);
            }
        }
    }
}

impl LinkHandle {
    fn next(&mut self) -> Result<Next, End> {
        self.queue.next().map_err(End::from)
    }
}

/// Sends the block that begins at `head`; how many bytes of its piece are left then.
async fn send_block(
    member: &Member,
    sender: &mut session::Sender,
    head: BlockHead,
    frame: &mut Vec<u8>,
) -> Result<u32, End> {
    let Some((store, piece_bytes)) = member.store(head.transfer, head.piece) else {
        // The transfer was forgotten meanwhile.
        frame.resize(BlockHead::BYTES, 0);
        return Ok(0);
    };
    let left = piece_bytes.saturating_sub(head.offset);
    let bytes = left.min(wire::block_bytes(piece_bytes));
    frame.resize(BlockHead::BYTES + bytes as usize, 0);
    frame[..BlockHead::BYTES].copy_from_slice(&head.encode());
    store.read(head.piece, head.offset, &mut frame[BlockHead::BYTES..]).map_err(End::Own)?;
    sender.send(frame).await?;
    Ok(left - bytes)
}

/// Receives and hands on, as long as something comes.
async fn receive_all(
    member: &Arc<Member>,
    peer: MemberId,
    receiver: &mut session::Receiver,
    heard: Arc<Heard>,
) -> Result<Never, End> {
    let mut arrival = Arrival::new(member.clone(), peer, heard);
    loop {
        receiver.recv_into(&mut arrival).await?;
        match arrival.frame().map_err(End::Fault)? {
            Frame::Control(mut rest) => {
                while !rest.is_empty() {
                    let item = wire::take_item(&mut rest)?;
                    member.hear(peer, item).map_err(End::Fault)?;
                }
            }
            Frame::Manifest(frame) => member.take_manifest(peer, &frame).map_err(End::Fault)?,
            Frame::Block { head, bytes } => {
                member.count_received(peer, head.transfer, bytes);
                take_block(member, peer, &mut arrival, head)?;
            }
        }
    }
}

/// A block is in `arrival`.
fn take_block(member: &Arc<Member>, peer: MemberId, arrival: &mut Arrival, head: BlockHead) -> Result<(), End> {
    let Some((store, piece)) = arrival.add_block(head).map_err(End::Fault)? else { return Ok(()) };
    let written = store.write(head.piece, piece);
    arrival.release();
    match written {
        Ok(_) => {
            member.stored(peer, head.transfer, head.piece);
            Ok(())
        }
        Err(StoreError::Mismatch { piece }) => {
            member.bad(peer, head.transfer, piece);
            Err(End::Fault(format!("what it sent for piece {piece} has another BLAKE3 hash")))
        }
        Err(error) => Err(End::Own(error)),
    }
}

/// Buffers that no piece is arriving in.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub fn put(&self, buffer: Vec<u8>) {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < MAX_BUFFERS && buffer.capacity() > 0 {
            buffers.push(buffer);
        }
    }
}

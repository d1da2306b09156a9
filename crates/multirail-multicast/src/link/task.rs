//! The task of a link: sends what is queued and receives what arrives.
//!
//! A piece arrives as blocks, which `receive_all` gives to `take_block`. The last block completes
//! the piece in [`Arrival::add_block`]; then [`Store::write`](crate::store::Store::write) verifies
//! and stores it, and [`LinkOwner::stored`] tells the state machine. The way out: the machine's
//! actions fill the link's queue, `send_all` takes the next block from it, and `send_block` reads
//! it from the store.

use super::arrival::{Arrival, ArrivedFrame, LastArrival};
use super::owner::LinkOwner;
use super::queue::Next;
use crate::store::StoreError;
use crate::wire::{self, BlockHead};
use multirail_net::{Error, Session, session};
use multirail_proto::multicast::MemberId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long an ending link waits for the peer to receive everything.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a link ends.
#[derive(Debug)]
enum End {
    /// One of the two hosts closed the link.
    Closed,
    /// The network or the peer's process failed.
    Lost(Error),
    /// The peer broke the rules.
    Fault(String),
    /// This host's store failed.
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

pub(super) async fn run(
    owner: Arc<dyn LinkOwner>,
    peer: MemberId,
    number: u64,
    session: Session,
    news: Arc<Notify>,
    last_arrival: Arc<LastArrival>,
) {
    let (mut sender, mut receiver) = session.into_split();
    let end = tokio::select! {
        Err(end) = send_all(&owner, peer, number, &mut sender, &news) => end,
        Err(end) = receive_all(&owner, peer, &mut receiver, last_arrival) => end,
    };
    match end {
        End::Closed => owner.link_down(peer, number, "closed", false),
        End::Lost(error) => owner.link_down(peer, number, &error.to_string(), false),
        End::Fault(what) => owner.link_down(peer, number, &what, true),
        End::Own(error) => owner.fail(error.to_string()),
    }
}

type Never = std::convert::Infallible;

/// Sends what is queued until the link ends.
async fn send_all(
    owner: &Arc<dyn LinkOwner>,
    peer: MemberId,
    number: u64,
    sender: &mut session::Sender,
    news: &Notify,
) -> Result<Never, End> {
    let mut frame = Vec::new();
    loop {
        let next = owner.next(peer, number).ok_or(End::Closed)??;
        match next {
            Next::Control(frame) => sender.send(&frame).await?,
            Next::Manifest(frame) => sender.send(&frame).await?,
            Next::Block(head) => {
                let left = send_block(&**owner, sender, head, &mut frame).await?;
                let sent_bytes = (frame.len() - BlockHead::BYTES) as u32;
                owner.advance(peer, number, (left > 0).then_some(sent_bytes));
                if left == 0 {
                    owner.sent(peer, head.transfer, head.piece);
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

/// Sends the block that begins at `head`; the number of bytes of its piece that are left.
async fn send_block(
    owner: &dyn LinkOwner,
    sender: &mut session::Sender,
    head: BlockHead,
    frame: &mut Vec<u8>,
) -> Result<u32, End> {
    let Some((store, piece_bytes)) = owner.store(head.transfer, head.piece) else {
        // The transfer has ended.
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

/// Receives frames and gives their content to the owner.
async fn receive_all(
    owner: &Arc<dyn LinkOwner>,
    peer: MemberId,
    receiver: &mut session::Receiver,
    last_arrival: Arc<LastArrival>,
) -> Result<Never, End> {
    let mut arrival = Arrival::new(owner.clone(), peer, last_arrival);
    loop {
        receiver.recv_into(&mut arrival).await?;
        match arrival.frame().map_err(End::Fault)? {
            ArrivedFrame::Control(mut rest) => {
                while !rest.is_empty() {
                    let item = wire::take_item(&mut rest)?;
                    owner.control_item(peer, item).map_err(|fault| End::Fault(fault.to_string()))?;
                }
            }
            ArrivedFrame::Manifest(frame) => owner.manifest(peer, &frame).map_err(End::Fault)?,
            ArrivedFrame::Block { head, bytes } => {
                owner.bytes_received(peer, head.transfer, bytes);
                take_block(owner, peer, &mut arrival, head)?;
            }
        }
    }
}

/// Takes the block that has arrived. Stores the piece if that was its last block.
fn take_block(owner: &Arc<dyn LinkOwner>, peer: MemberId, arrival: &mut Arrival, head: BlockHead) -> Result<(), End> {
    let Some((store, piece)) = arrival.add_block(head).map_err(End::Fault)? else { return Ok(()) };
    let written = store.write(head.piece, piece);
    arrival.release();
    match written {
        Ok(_) => {
            owner.stored(peer, head.transfer, head.piece);
            Ok(())
        }
        Err(StoreError::Mismatch { piece }) => {
            owner.bad_piece(peer, head.transfer, piece);
            Err(End::Fault(format!("its bytes for piece {piece} have another BLAKE3 hash")))
        }
        Err(error) => Err(End::Own(error)),
    }
}

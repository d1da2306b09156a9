//! The send queue of one link: control items before manifests before pieces.

use crate::wire::{self, BlockHead, CONTROL_FRAME_BYTES, tag};
use multirail_net::error::Result;
use multirail_proto::multicast::Message;
use multirail_proto::multicast::member::ControlItem;
use std::collections::VecDeque;
use std::sync::Arc;

/// The most piece numbers in one message: about 40 KiB.
const MAX_LIST: usize = 8192;
/// The most pieces in the queue of one peer, which is the most that a peer may request.
pub(super) const MAX_PIECES_QUEUED: usize = 1 << 20;

/// What waits to be sent on one link.
#[derive(Debug, Default)]
pub(super) struct LinkQueue {
    control: VecDeque<ControlItem>,
    manifests: VecDeque<Arc<Vec<u8>>>,
    pieces: VecDeque<(u32, u32)>,
    /// The next block of the piece that is being sent.
    current: Option<BlockHead>,
    /// The link closes when the queue is empty.
    closing: bool,
}

/// What a link sends next.
#[derive(Debug)]
pub(crate) enum Next {
    /// A control frame.
    Control(Vec<u8>),
    /// A manifest frame.
    Manifest(Arc<Vec<u8>>),
    /// A block that begins here. [`LinkQueue::advance`] moves on to the next one.
    Block(BlockHead),
    /// Nothing until something is queued.
    Idle,
    /// Nothing more: the link closes.
    Close,
}

impl LinkQueue {
    /// Queues an item. Lists of one kind are merged with a list that waits.
    pub(super) fn push(&mut self, item: ControlItem) {
        let ControlItem::Node(transfer, message) = &item else { return self.control.push_back(item) };
        for waiting in self.control.iter_mut().rev() {
            let ControlItem::Node(of, waiting) = waiting else { break };
            if of == transfer && merge(waiting, message) {
                return;
            }
            // Only these two kinds of messages may overtake each other.
            let passes = |m: &Message| matches!(m, Message::Have(_) | Message::Request(_));
            if of != transfer || !passes(waiting) || !passes(message) {
                break;
            }
        }
        self.control.push_back(item);
    }

    pub(super) fn push_manifest(&mut self, frame: Arc<Vec<u8>>) {
        self.manifests.push_back(frame);
    }

    pub(super) fn push_piece(&mut self, transfer: u32, piece: u32) {
        if self.pieces.len() < MAX_PIECES_QUEUED {
            self.pieces.push_back((transfer, piece));
        }
    }

    /// Removes a piece that has not begun.
    pub(super) fn withdraw(&mut self, transfer: u32, piece: u32) {
        if let Some(at) = self.pieces.iter().position(|p| *p == (transfer, piece)) {
            self.pieces.remove(at);
        }
    }

    /// Removes all pieces of a transfer. A piece that has begun is sent to its end.
    pub(super) fn forget(&mut self, transfer: u32) {
        self.pieces.retain(|(of, _)| *of != transfer);
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// What the link sends next.
    pub(super) fn next(&mut self) -> Result<Next> {
        if !self.control.is_empty() {
            let mut frame = vec![tag::CONTROL];
            while let Some(item) = self.control.pop_front_if(|_| frame.len() < CONTROL_FRAME_BYTES) {
                frame = wire::put_item(&item, frame)?;
            }
            return Ok(Next::Control(frame));
        }
        if self.current.is_none() {
            if let Some(frame) = self.manifests.pop_front() {
                return Ok(Next::Manifest(frame));
            }
            self.current = self.pieces.pop_front().map(|(transfer, piece)| BlockHead { transfer, piece, offset: 0 });
        }
        Ok(match self.current {
            Some(head) => Next::Block(head),
            None if self.closing => Next::Close,
            None => Next::Idle,
        })
    }

    /// `sent_bytes` of the current piece went out; `None`: its last.
    pub(super) fn advance(&mut self, sent_bytes: Option<u32>) {
        match (&mut self.current, sent_bytes) {
            (Some(head), Some(bytes)) => head.offset += bytes,
            (current, _) => *current = None,
        }
    }
}

/// Appends `more` to `waiting` if both are lists of one kind and fit in one message.
fn merge(waiting: &mut Message, more: &Message) -> bool {
    let (list, more) = match (waiting, more) {
        (Message::Have(a), Message::Have(b))
        | (Message::Request(a), Message::Request(b))
        | (Message::Cancel(a), Message::Cancel(b))
        | (Message::Fetching(a), Message::Fetching(b))
        | (Message::Take(a), Message::Take(b))
        | (Message::Watch(a), Message::Watch(b)) => (a, b),
        _ => return false,
    };
    let fits = list.len() + more.len() <= MAX_LIST;
    if fits {
        list.extend_from_slice(more);
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(queue: &mut LinkQueue) -> Vec<ControlItem> {
        let Next::Control(frame) = queue.next().unwrap() else { panic!("no control frame") };
        let (mut rest, mut items) = (&frame[1..], Vec::new());
        while !rest.is_empty() {
            items.push(wire::take_item(&mut rest).unwrap());
        }
        items
    }

    fn node(message: Message) -> ControlItem {
        ControlItem::Node(0, message)
    }

    #[test]
    fn equal_items_are_sent_once() {
        let mut queue = LinkQueue::default();
        for piece in 0..3 {
            queue.push(node(Message::Have(vec![piece])));
            queue.push(node(Message::Request(vec![piece + 10])));
        }
        queue.push(node(Message::Cancel(vec![10])));
        queue.push(node(Message::Request(vec![10])));
        queue.push(ControlItem::Node(1, Message::Request(vec![10])));
        let expected = [
            node(Message::Have(vec![0, 1, 2])),
            node(Message::Request(vec![10, 11, 12])),
            node(Message::Cancel(vec![10])),
            node(Message::Request(vec![10])),
            ControlItem::Node(1, Message::Request(vec![10])),
        ];
        assert_eq!(items(&mut queue), expected);
    }

    #[test]
    fn lists_have_a_limit() {
        let mut queue = LinkQueue::default();
        queue.push(node(Message::Have(vec![0; MAX_LIST - 1])));
        queue.push(node(Message::Have(vec![1])));
        queue.push(node(Message::Have(vec![2])));
        let ControlItem::Node(_, Message::Have(list)) = &items(&mut queue)[0] else { panic!("no list") };
        assert_eq!(list.len(), MAX_LIST);
    }

    #[test]
    fn control_comes_between_blocks_and_a_begun_piece_is_not_withdrawn() {
        let mut queue = LinkQueue::default();
        queue.push_piece(0, 5);
        queue.push_piece(0, 6);
        assert!(matches!(queue.next(), Ok(Next::Block(BlockHead { piece: 5, offset: 0, .. }))));
        queue.advance(Some(10));
        queue.push(ControlItem::Ask);
        queue.push_manifest(Arc::default());
        queue.withdraw(0, 5);
        queue.withdraw(0, 6);
        queue.close();
        assert!(matches!(queue.next(), Ok(Next::Control(_))));
        assert!(matches!(queue.next(), Ok(Next::Block(BlockHead { piece: 5, offset: 10, .. }))));
        queue.advance(None);
        assert!(matches!(queue.next(), Ok(Next::Manifest(_))));
        assert!(matches!(queue.next(), Ok(Next::Close)));
    }
}

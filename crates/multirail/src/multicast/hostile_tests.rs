//! A member that breaks the rules: it alone is left out, and named.

use super::coordinator::Coordinator;
use super::memory_store::MemoryStore;
use super::receiver::Receiver;
use super::wire::{
    self, BlockHead, Ends, FromHost, Invite, Item, MAX_FRAME_BYTES, MAX_INVITE_BYTES, ManifestHead, PeerHello,
    PeerReply, receive_body, tag,
};
use super::{Host, Manifest, Method, Options, Outcome};
use crate::payload::VecSink;
use crate::service::{self, Request};
use crate::session::{Accepted, ListenConfig, Listener, Receiver as Half, Sender};
use crate::{Config, Error, Session, Token};
use multirail_proto::multicast::{Message, PieceSet, Pieces};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What the member does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    /// Sends pieces that are none.
    WrongPieces,
    /// Says that it has everything, and answers requests with what is none.
    WrongAnswers,
    /// Says that it has everything, and answers nothing.
    NoAnswers,
    /// Asks for the same again and again.
    Flood,
    /// Speaks of pieces that do not exist.
    OutOfRange,
    /// Sends what is no frame.
    Garbage,
    /// Sends a frame that is longer than any.
    Oversized,
    /// Sends the manifest of something else.
    OtherManifest,
}

#[derive(Debug)]
struct Hostile {
    deed: Deed,
    cut_off: AtomicU32,
    /// What it learned of the broadcast.
    pieces: watch::Sender<Option<Pieces>>,
}

fn config() -> Config {
    Config { token: Some(Token::new(b"the token of these tests")), ..Config::default() }
}

fn listen_config() -> ListenConfig {
    ListenConfig { address: "127.0.0.1:0".parse().unwrap(), insecure_no_token: false, session: config() }
}

impl Hostile {
    async fn serve(self: Arc<Self>, mut listener: Listener) {
        while let Ok(Accepted::Session(new)) = listener.accept().await {
            tokio::spawn(self.clone().answer(new.start()));
        }
    }

    async fn answer(self: Arc<Self>, mut session: Session) -> Result<(), Error> {
        match service::receive(&mut session).await? {
            Request::Multicast(request) => {
                let invite: Invite = receive_body(session.split().1, MAX_INVITE_BYTES).await?;
                service::send(&mut session, &FromHost::Joined).await?;
                for to in (0..invite.hosts.len() as u32).filter(|to| *to != invite.me) {
                    let ends = Ends { incarnation: 1, downs: 0 };
                    let hello = PeerHello { group: request.group, from: invite.me, ends };
                    tokio::spawn(self.clone().dial(invite.hosts[to as usize].address.clone(), hello));
                }
                // It stays until the coordinator goes.
                let end: Result<super::wire::ToHost, Error> = receive_body(session.split().1, 1 << 20).await;
                end.map(drop)
            }
            Request::MulticastPeer(_) => {
                let welcome = PeerReply::Welcome(Ends { incarnation: 1, downs: 0 });
                service::send(&mut session, &welcome).await?;
                self.attack(session).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn dial(self: Arc<Self>, address: String, hello: PeerHello) -> Result<(), Error> {
        let mut session = Session::connect(&address, config()).await?;
        service::send(&mut session, &Request::MulticastPeer(hello)).await?;
        if let PeerReply::Welcome(_) = service::receive(&mut session).await? {
            self.attack(session).await;
        }
        Ok(())
    }

    /// Does its deed until it is shown the door.
    async fn attack(&self, session: Session) {
        let (mut sender, mut receiver) = session.into_split();
        let (heard, said) = mpsc::unbounded_channel();
        tokio::select! {
            Err(_) = self.send(&mut sender, said) => {}
            () = self.receive(&mut receiver, heard) => {}
        }
        self.cut_off.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what comes, until no more does.
    async fn receive(&self, receiver: &mut Half, heard: mpsc::UnboundedSender<Item>) {
        let mut frame = VecSink::new(MAX_FRAME_BYTES);
        while receiver.recv_into(&mut frame).await.is_ok() {
            match frame.bytes[0] {
                tag::MANIFEST => {
                    let (_, manifest, _) = wire::split_manifest(&frame.bytes).unwrap();
                    self.pieces.send_replace(Some(Manifest::decode(manifest).unwrap().pieces()));
                }
                tag::CONTROL => {
                    let mut rest = &frame.bytes[1..];
                    while !rest.is_empty() {
                        let _ = heard.send(wire::take_item(&mut rest).unwrap());
                    }
                }
                _ => {}
            }
        }
    }

    async fn send(&self, sender: &mut Sender, mut said: mpsc::UnboundedReceiver<Item>) -> Result<(), Error> {
        let frame =
            |items: &[Item]| items.iter().fold(vec![tag::CONTROL], |frame, item| wire::put_item(item, frame).unwrap());
        let tick = || tokio::time::sleep(Duration::from_millis(5));
        match self.deed {
            Deed::Garbage => loop {
                sender.send(&[9; 100]).await?;
                tick().await;
            },
            Deed::Oversized => loop {
                sender.send(&vec![tag::MANIFEST; MAX_FRAME_BYTES as usize + 1]).await?;
            },
            Deed::OtherManifest => loop {
                let manifest = Manifest::of_memory(&[1; 100], None).unwrap().encode();
                let head = ManifestHead { transfer: 1, duties: vec![0], manifest_bytes: manifest.len() as u32 };
                sender.send(&wire::manifest_frame(&head, &manifest, &[1; 100]).unwrap()).await?;
                tick().await;
            },
            Deed::OutOfRange => loop {
                sender.send(&frame(&[Item::Ready(0), Item::Node(0, Message::Have(vec![u32::MAX]))])).await?;
                tick().await;
            },
            Deed::Flood => loop {
                sender.send(&frame(&[Item::Ready(0), Item::Node(0, Message::Request(vec![0; 500]))])).await?;
                tick().await;
            },
            Deed::WrongPieces | Deed::WrongAnswers | Deed::NoAnswers => {
                let mut known = self.pieces.subscribe();
                let pieces = known.wait_for(Option::is_some).await.unwrap().unwrap();
                let everything = Message::Bitfield(PieceSet::all(pieces.count()).to_bytes());
                sender.send(&frame(&[Item::Ready(0)])).await?;
                // What is said before the other one is ready is not heard.
                while said.recv().await.is_some_and(|item| item != Item::Ready(0)) {}
                sender.send(&frame(&[Item::Node(0, everything)])).await?;
                if self.deed == Deed::WrongPieces {
                    for piece in (0..pieces.count()).cycle() {
                        send_zeros(sender, pieces, piece).await?;
                        tick().await;
                    }
                }
                while let Some(item) = said.recv().await {
                    if let (Deed::WrongAnswers, Item::Node(_, Message::Request(list))) = (self.deed, item) {
                        for piece in list {
                            send_zeros(sender, pieces, piece).await?;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

async fn send_zeros(sender: &mut Sender, pieces: Pieces, piece: u32) -> Result<(), Error> {
    let range = pieces.range(piece);
    let piece_bytes = (range.end - range.start) as u32;
    for offset in (0..piece_bytes).step_by(wire::block_bytes(piece_bytes) as usize) {
        let bytes = wire::block_bytes(piece_bytes).min(piece_bytes - offset);
        let mut block = BlockHead { transfer: 0, piece, offset }.encode().to_vec();
        block.resize(BlockHead::BYTES + bytes as usize, 0);
        sender.send(&block).await?;
    }
    Ok(())
}

/// Broadcasts to four that are good and one that is not. Returns how often that one was cut off, and what was said of it.
fn broadcast_with(deed: Deed, method: Method, cluster: u32) -> (u32, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(listen_config()).await.unwrap();
        let bad = Host { address: listener.address().to_string(), cluster };
        let hostile = Arc::new(Hostile { deed, cut_off: AtomicU32::new(0), pieces: watch::Sender::new(None) });
        let serving = tokio::spawn(hostile.clone().serve(listener));
        let (mut hosts, mut receivers) = (Vec::new(), Vec::new());
        for number in 0..4 {
            let receiver = Receiver::bind(listen_config(), 1 << 30).await.unwrap();
            hosts.push(Host { address: receiver.address().to_string(), cluster: number % 2 });
            receivers.push(receiver);
        }
        hosts.push(bad);
        // Longer than hosts wait for an answer, twice.
        let give_up_after = Duration::from_secs(if deed == Deed::NoAnswers { 12 } else { 4 });
        let wait_for_lost = Duration::ZERO;
        let options =
            Options { method, config: config(), seed: Some(7), give_up_after, wait_for_lost, ..Options::default() };
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let store = Arc::new(MemoryStore::full(data.clone(), None).unwrap());
        let id = super::Store::manifest(&*store).id();
        let mut coordinator = Coordinator::begin(&hosts, 0, &options, None, Some(id)).await.unwrap();
        coordinator.gather().await;
        let broadcast = coordinator.broadcast(0, store, Vec::new());
        let summary = tokio::time::timeout(Duration::from_secs(60), broadcast).await.expect("it ends").unwrap();
        coordinator.end().await;
        for (host, receiver) in summary.hosts[..4].iter().zip(&mut receivers) {
            assert_eq!(host.outcome, Outcome::Complete, "{deed:?} by {method}: {summary:#?}");
            assert!(host.complaints.is_empty(), "{summary:#?}");
            assert!(receiver.next().await.unwrap() == data, "{deed:?}: other data");
        }
        assert!(matches!(summary.hosts[4].outcome, Outcome::Failed(_)), "{summary:#?}");
        serving.abort();
        (hostile.cut_off.load(Ordering::Relaxed), summary.hosts[4].complaints.clone())
    })
}

fn is_cut_off(deed: Deed, method: Method, cluster: u32, because: &str) {
    let (cut_off, complaints) = broadcast_with(deed, method, cluster);
    assert!(cut_off > 0, "{deed:?}");
    assert!(complaints.iter().any(|c| c.contains(because)), "{deed:?}: {complaints:?}");
}

#[test]
fn one_who_sends_wrong_pieces_is_cut_off() {
    is_cut_off(Deed::WrongPieces, Method::Adaptive, 1, "another BLAKE3 hash");
    // In the root's cluster, which has no shares: another cluster would wait for this host's.
    is_cut_off(Deed::WrongAnswers, Method::Mob, 0, "another BLAKE3 hash");
}

#[test]
fn one_who_promises_everything_and_answers_nothing_holds_nobody_up() {
    let (cut_off, _) = broadcast_with(Deed::NoAnswers, Method::Adaptive, 1);
    assert!(cut_off > 0);
}

#[test]
fn one_who_floods_is_cut_off() {
    is_cut_off(Deed::Flood, Method::Adaptive, 1, "floods");
}

#[test]
fn one_who_speaks_of_pieces_that_do_not_exist_is_cut_off() {
    is_cut_off(Deed::OutOfRange, Method::Adaptive, 1, "speaks of piece");
}

#[test]
fn one_who_sends_what_is_no_frame_is_cut_off() {
    is_cut_off(Deed::Garbage, Method::Adaptive, 1, "kind 9");
    is_cut_off(Deed::Oversized, Method::Adaptive, 1, "broke the protocol");
}

#[test]
fn one_who_brings_another_manifest_is_cut_off() {
    is_cut_off(Deed::OtherManifest, Method::Adaptive, 1, "not the one of this broadcast");
}

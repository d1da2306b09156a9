//! A member that breaks the rules is left out and named; the other hosts complete.

use super::coordinator::CoordinatorDriver;
use super::driver::LINK_GIVES_UP_AFTER;
use super::receiver::Receiver;
use crate::pass::Pass;
use crate::request::{MULTICAST, MulticastRequest};
use crate::store::memory::MemoryStore;
use crate::store::testing::Temp;
use crate::wire::{
    self, BlockHead, FromHost, GroupId, Invite, JoinReply, JoinRequest, MAX_FRAME_BYTES, MAX_INVITE_BYTES,
    ManifestHead, PeerHello, PeerReply, ToHost, receive_body, tag,
};
use crate::{BroadcastHost, FetchOptions, Joining, Manifest, Method, Options, Outcome, Ticket, broadcast_path, fetch};
use multirail_net::payload::VecSink;
use multirail_net::request;
use multirail_net::session::{Accepted, ListenConfig, Listener, Receiver as Half, Sender};
use multirail_net::{Config, Error, RateLimit, Session, Token};
use multirail_proto::multicast::member::{ControlItem, LinkEnds};
use multirail_proto::multicast::{Message, PieceSet, Pieces};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// What the member does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    /// Sends wrong bytes for pieces.
    WrongPieces,
    /// Announces every piece and answers requests with wrong bytes.
    WrongAnswers,
    /// Announces every piece and answers no request.
    NoAnswers,
    /// Repeats the same request.
    Flood,
    /// Names pieces that do not exist.
    OutOfRange,
    /// Sends bytes that are no frame.
    Garbage,
    /// Sends a frame beyond the limit.
    Oversized,
    /// Sends the manifest of other data.
    OtherManifest,
    /// Says that it is the root, and sends bytes that are no frame.
    PosesAsRoot,
}

#[derive(Debug)]
struct Hostile {
    deed: Deed,
    cut_off: AtomicU32,
    /// What the member learned of the broadcast.
    pieces: watch::Sender<Option<Pieces>>,
    /// What the root gave it.
    pass: Mutex<Pass>,
}

fn config() -> Config {
    Config::new().token(Token::new(b"the token of these tests"))
}

fn listen_config() -> ListenConfig {
    ListenConfig::new(([127, 0, 0, 1], 0), config())
}

impl Hostile {
    async fn serve(self: Arc<Self>, mut listener: Listener) {
        while let Ok(Accepted::Session(new)) = listener.accept().await {
            tokio::spawn(self.clone().answer(new.start()));
        }
    }

    async fn answer(self: Arc<Self>, mut session: Session) -> Result<(), Error> {
        match request::receive_request(&mut session).await?.parse()? {
            MulticastRequest::Invite(request) => {
                let invite: Invite = receive_body(session.split().1, MAX_INVITE_BYTES).await?;
                request::send(&mut session, &FromHost::Joined).await?;
                self.begin(request.group, &invite);
                // The session stays until the coordinator ends it.
                let end: Result<crate::wire::ToHost, Error> = receive_body(session.split().1, 1 << 20).await;
                end.map(drop)
            }
            MulticastRequest::Peer(_) => {
                // The pass of another member.
                let is_other = self.deed == Deed::PosesAsRoot;
                let pass = if is_other { Pass::default() } else { self.pass.lock().unwrap().clone() };
                let welcome = PeerReply::Welcome(LinkEnds { incarnation: 1, downs: 0 }, pass);
                request::send(&mut session, &welcome).await?;
                self.attack(session).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Begins its part: dials all members.
    fn begin(self: &Arc<Self>, group: GroupId, invite: &Invite) {
        self.pass.lock().unwrap().clone_from(&invite.pass);
        let from = if self.deed == Deed::PosesAsRoot { invite.root } else { invite.me };
        for to in (0..invite.hosts.len() as u32).filter(|to| *to != invite.me) {
            let ends = LinkEnds { incarnation: 1, downs: 0 };
            let hello = PeerHello { group, from, ends, pass: invite.pass.clone() };
            tokio::spawn(self.clone().dial(invite.hosts[to as usize].address.clone(), hello));
        }
    }

    /// Joins by a ticket. Returns once it is a member; its part goes on in the task.
    async fn join(self: Arc<Self>, ticket: &Ticket) -> JoinHandle<()> {
        // Like other members, it soon gives up a session whose peer has left it.
        let links = config().give_up_after(LINK_GIVES_UP_AFTER);
        let listener = Listener::bind(ListenConfig::new(([0; 4], 0), links)).await.unwrap();
        let port = listener.address().port();
        tokio::spawn(self.clone().serve(listener));
        let mut session = Session::connect(&ticket.addresses()[0], config()).await.unwrap();
        let asked = JoinRequest { group: ticket.group(), port, me: None };
        request::send_request(&mut session, MULTICAST, &MulticastRequest::Join(asked)).await.unwrap();
        let reply = receive_body(session.split().1, MAX_INVITE_BYTES).await.unwrap();
        let JoinReply::Invite(invite) = reply else { panic!("{reply:?}") };
        request::send(&mut session, &FromHost::Joined).await.unwrap();
        self.begin(ticket.group(), &invite);
        let group = ticket.group();
        tokio::spawn(async move {
            while let Ok(order) = receive_body(session.split().1, MAX_INVITE_BYTES).await {
                if let ToHost::Regroup { joined, first, .. } = order {
                    let hosts = [&invite.hosts[..first as usize], &joined].concat();
                    self.begin(group, &Invite { hosts, ..(*invite).clone() });
                }
            }
        })
    }

    async fn dial(self: Arc<Self>, address: String, hello: PeerHello) -> Result<(), Error> {
        let mut session = Session::connect(&address, config()).await?;
        request::send_request(&mut session, MULTICAST, &MulticastRequest::Peer(hello)).await?;
        if let PeerReply::Welcome(..) = request::receive(&mut session).await? {
            self.attack(session).await;
        }
        Ok(())
    }

    /// Acts until it is disconnected.
    async fn attack(&self, session: Session) {
        let (mut sender, mut receiver) = session.into_split();
        let (heard, said) = mpsc::unbounded_channel();
        tokio::select! {
            Err(_) = self.send(&mut sender, said) => {}
            () = self.receive(&mut receiver, heard) => {}
        }
        self.cut_off.fetch_add(1, Ordering::Relaxed);
    }

    /// Receives until the session ends.
    async fn receive(&self, receiver: &mut Half, heard: mpsc::UnboundedSender<ControlItem>) {
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

    async fn send(&self, sender: &mut Sender, mut said: mpsc::UnboundedReceiver<ControlItem>) -> Result<(), Error> {
        let frame = |items: &[ControlItem]| {
            items.iter().fold(vec![tag::CONTROL], |frame, item| wire::put_item(item, frame).unwrap())
        };
        let tick = || tokio::time::sleep(Duration::from_millis(5));
        match self.deed {
            Deed::Garbage | Deed::PosesAsRoot => loop {
                sender.send(&[9; 100]).await?;
                tick().await;
            },
            Deed::Oversized => loop {
                sender.send(&vec![tag::MANIFEST; MAX_FRAME_BYTES as usize + 1]).await?;
            },
            Deed::OtherManifest => loop {
                let manifest = Manifest::of_memory(&[1; 100], None).unwrap().encode();
                let head = ManifestHead { transfer: 1, positions: vec![0], manifest_bytes: manifest.len() as u32 };
                sender.send(&wire::manifest_frame(&head, &manifest, &[1; 100]).unwrap()).await?;
                tick().await;
            },
            Deed::OutOfRange => loop {
                sender
                    .send(&frame(&[ControlItem::Ready(0), ControlItem::Node(0, Message::Have(vec![u32::MAX]))]))
                    .await?;
                tick().await;
            },
            Deed::Flood => loop {
                sender
                    .send(&frame(&[ControlItem::Ready(0), ControlItem::Node(0, Message::Request(vec![0; 500]))]))
                    .await?;
                tick().await;
            },
            Deed::WrongPieces | Deed::WrongAnswers | Deed::NoAnswers => {
                // A host that joins asks for the manifest.
                sender.send(&frame(&[ControlItem::Ask])).await?;
                let mut known = self.pieces.subscribe();
                let pieces = known.wait_for(Option::is_some).await.unwrap().unwrap();
                let everything = Message::Bitfield(PieceSet::all(pieces.count()).to_bytes());
                sender.send(&frame(&[ControlItem::Ready(0)])).await?;
                // Items before the peer's `Ready` are ignored.
                while said.recv().await.is_some_and(|item| item != ControlItem::Ready(0)) {}
                sender.send(&frame(&[ControlItem::Node(0, everything)])).await?;
                if self.deed == Deed::WrongPieces {
                    for piece in (0..pieces.count()).cycle() {
                        send_zeros(sender, pieces, piece).await?;
                        tick().await;
                    }
                }
                while let Some(item) = said.recv().await {
                    if let (Deed::WrongAnswers, ControlItem::Node(_, Message::Request(list))) = (self.deed, item) {
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

/// Broadcasts to four honest hosts and one that is not. Returns how often that one was
/// disconnected, and the complaints about it.
fn broadcast_with(deed: Deed, method: Method, cluster: u32) -> (u32, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(listen_config()).await.unwrap();
        let bad = BroadcastHost { address: listener.address().to_string(), cluster };
        let hostile = Arc::new(Hostile {
            deed,
            cut_off: AtomicU32::new(0),
            pieces: watch::Sender::new(None),
            pass: Mutex::default(),
        });
        let serving = tokio::spawn(hostile.clone().serve(listener));
        let (mut hosts, mut receivers) = (Vec::new(), Vec::new());
        for number in 0..4 {
            let receiver = Receiver::bind(listen_config(), 1 << 30).await.unwrap();
            hosts.push(BroadcastHost { address: receiver.address().to_string(), cluster: number % 2 });
            receivers.push(receiver);
        }
        hosts.push(bad);
        // Twice as long as hosts wait for an answer.
        let give_up_after = Duration::from_secs(if deed == Deed::NoAnswers { 12 } else { 4 });
        let wait_for_lost = Duration::ZERO;
        let options =
            Options { method, config: config(), seed: Some(7), give_up_after, wait_for_lost, ..Options::default() };
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let store = Arc::new(MemoryStore::full(data.clone(), None).unwrap());
        let id = crate::store::Store::manifest(&*store).id();
        let mut coordinator = CoordinatorDriver::begin(&hosts, 0, &options, None, Some(id)).await.unwrap();
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

fn is_disconnected(deed: Deed, method: Method, cluster: u32, because: &str) {
    let (cut_off, complaints) = broadcast_with(deed, method, cluster);
    assert!(cut_off > 0, "{deed:?}");
    assert!(complaints.iter().any(|c| c.contains(because)), "{deed:?}: {complaints:?}");
}

#[test]
fn a_sender_of_wrong_pieces_is_disconnected() {
    is_disconnected(Deed::WrongPieces, Method::Adaptive, 1, "another BLAKE3 hash");
    // In the root's cluster, which has no shares: another cluster would wait for this host's share.
    is_disconnected(Deed::WrongAnswers, Method::Mob, 0, "another BLAKE3 hash");
}

#[test]
fn a_member_that_announces_but_does_not_answer_delays_no_host() {
    let (cut_off, _) = broadcast_with(Deed::NoAnswers, Method::Adaptive, 1);
    assert!(cut_off > 0);
}

#[test]
fn a_flooding_member_is_disconnected() {
    is_disconnected(Deed::Flood, Method::Adaptive, 1, "floods");
}

#[test]
fn a_member_that_names_missing_pieces_is_disconnected() {
    is_disconnected(Deed::OutOfRange, Method::Adaptive, 1, "names piece");
}

#[test]
fn a_sender_of_invalid_frames_is_disconnected() {
    is_disconnected(Deed::Garbage, Method::Adaptive, 1, "kind 9");
    is_disconnected(Deed::Oversized, Method::Adaptive, 1, "broke the protocol");
}

#[test]
fn a_sender_of_another_manifest_is_disconnected() {
    is_disconnected(Deed::OtherManifest, Method::Adaptive, 1, "not the one of this broadcast");
}

#[test]
fn a_member_that_poses_as_the_root_gets_no_link() {
    let (cut_off, complaints) = broadcast_with(Deed::PosesAsRoot, Method::Adaptive, 1);
    assert_eq!((cut_off, complaints), (0, Vec::new()));
}

/// Fetches from the root and from a host that has joined and does `deed`. Returns how often that one was
/// disconnected, and the complaints about it.
fn fetch_beside(deed: Deed) -> (u32, Vec<String>) {
    let temp = Temp::new();
    let (source, to) = (temp.join("data"), temp.join("to"));
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&source, &data).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let joining = Joining::new(None);
        // So slowly that the other host is asked, too.
        let slow = config().rate_limit(RateLimit::new(Some(750_000)));
        let options = Options::new().config(slow).joining(joining.clone()).give_up_after(Duration::from_secs(12));
        let broadcast = tokio::spawn(async move { broadcast_path(&source, &[], 0, &options).await });
        let ticket = joining.ticket().await;
        let (cut_off, pieces) = (AtomicU32::new(0), watch::Sender::new(None));
        let hostile = Arc::new(Hostile { deed, cut_off, pieces, pass: Mutex::default() });
        let part = hostile.clone().join(&ticket).await;
        let options = FetchOptions::new().root(&to).destination("copy").config(config());
        let fetched = tokio::time::timeout(Duration::from_secs(60), fetch(&ticket, &options)).await;
        fetched.expect("it ends").unwrap();
        assert!(std::fs::read(to.join("copy")).unwrap() == data, "{deed:?}: other data");
        part.abort();
        let stopped = async {
            while !joining.stop() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), stopped).await.expect("the rest is over");
        let summary = broadcast.await.unwrap().unwrap();
        assert!(matches!(summary.hosts[0].outcome, Outcome::Failed(_)), "{summary:#?}");
        assert_eq!(summary.hosts[1].outcome, Outcome::Complete, "{summary:#?}");
        (hostile.cut_off.load(Ordering::Relaxed), summary.hosts[0].complaints.clone())
    })
}

#[test]
fn a_host_that_joined_and_lies_about_what_it_has_is_disconnected() {
    for deed in [Deed::WrongPieces, Deed::WrongAnswers] {
        let (cut_off, complaints) = fetch_beside(deed);
        assert!(cut_off > 0, "{deed:?}");
        assert!(complaints.iter().any(|c| c.contains("another BLAKE3 hash")), "{deed:?}: {complaints:?}");
    }
    fetch_beside(Deed::NoAnswers);
}

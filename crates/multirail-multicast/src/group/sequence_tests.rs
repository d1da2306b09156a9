//! Random sequences of requests and frames from a hostile client: invitations, links, manifests and
//! blocks, valid and not, in any order.

use crate::handler::MulticastHandler;
use crate::pass::Pass;
use crate::request::{MULTICAST, MeasureRequest, MulticastRequest};
use crate::store::Store;
use crate::store::source::{SourceOptions, SourceStore};
use crate::store::testing::Temp;
use crate::wire::{
    self, BlockHead, Invite, InviteHost, InviteRequest, JoinRequest, ManifestHead, PeerHello, PeerReply, tag,
};
use crate::{BroadcastHost, Manifest, Method, Options, Outcome, broadcast_path};
use multirail_net::router::Router;
use multirail_net::session::{ListenConfig, Listener};
use multirail_net::{Config, Identity, Session, request, runtime};
use multirail_proto::multicast::member::{ControlItem, LinkEnds};
use multirail_proto::multicast::{Message, PieceSet};
use multirail_proto::rng::Rng;
use multirail_testing::for_seeds;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A step that a server does not answer takes no longer than this.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Groups that sequences share.
const GROUPS: u64 = 3;

/// Trees that may be sent: manifests with right and with wrong contents.
struct Sources(Vec<SourceStore>);

impl Sources {
    fn new(temp: &Temp) -> Self {
        let stores = (0..3).map(|number| {
            let top = temp.join("from").join(format!("top{number}"));
            fs::create_dir_all(top.join("sub")).unwrap();
            fs::write(top.join("one"), vec![number as u8 + 1; 40_000]).unwrap();
            fs::write(top.join("sub/two"), vec![number as u8 + 101; 100_000]).unwrap();
            let options = SourceOptions { recursive: true, piece_bytes: Some(1 << 14), ..SourceOptions::default() };
            SourceStore::open(&[top], &options).unwrap()
        });
        Self(stores.collect())
    }

    fn any(&self, rng: &mut Rng) -> &SourceStore {
        &self.0[rng.below(self.0.len() as u64) as usize]
    }

    /// The contents of all files. A changed manifest can give them other names.
    fn contents() -> Vec<Vec<u8>> {
        (0..3).flat_map(|number: u8| [vec![number + 1; 40_000], vec![number + 101; 100_000]]).collect()
    }
}

/// A group that no other sequence has, so that no host is banned in it, or now and then one of those that
/// sequences share.
fn group(rng: &mut Rng) -> [u8; 16] {
    if rng.below(8) == 0 {
        [rng.below(GROUPS) as u8; 16]
    } else {
        [rng.next_u64().to_le_bytes(); 2].concat().try_into().unwrap()
    }
}

fn invite(rng: &mut Rng, sources: &Sources) -> Invite {
    let count = if rng.below(8) == 0 { rng.below(3) } else { 2 };
    let destinations: [&[u8]; 6] = [b"", b"to", b"a/b", b"../x", b"/tmp/x", b"a\0b"];
    let manifest = match rng.below(4) {
        0 => Some(sources.any(rng).manifest().id()),
        1 => Some([7; 32]),
        _ => None,
    };
    Invite {
        // Nothing listens on this port.
        hosts: (0..count).map(|n| InviteHost { address: "127.0.0.1:1".to_owned(), cluster: n as u32 % 2 }).collect(),
        me: if rng.below(8) == 0 { rng.below(4) as u32 } else { 1 },
        root: if rng.below(8) == 0 { rng.below(4) as u32 } else { 0 },
        method: Method::ALL[rng.below(Method::ALL.len() as u64) as usize],
        bandwidths: None,
        destination: (rng.below(8) > 0).then(|| {
            let at = if rng.below(3) > 0 { rng.below(2) } else { rng.below(destinations.len() as u64) };
            destinations[at as usize].to_vec()
        }),
        sync: false,
        manifest,
        seed: rng.next_u64(),
        pass: Pass::default(),
    }
}

/// A frame of a link: of a manifest, of control items, of a block, or of nothing.
fn frame(rng: &mut Rng, sources: &Sources) -> Vec<u8> {
    let source = sources.any(rng);
    let pieces = source.manifest().pieces();
    match rng.below(12) {
        0 => (0..rng.below(60)).map(|_| rng.below(256) as u8).collect(),
        1 | 2 => {
            let mut manifest = source.manifest().encode();
            if rng.below(3) == 0 {
                let at = rng.below(manifest.len() as u64) as usize;
                manifest[at] ^= 1 << rng.below(8);
            }
            let positions = (0..rng.below(2)).map(|_| rng.below(4) as u32).collect();
            let manifest_bytes = manifest.len() as u32 + u32::from(rng.below(10) == 0);
            let head = ManifestHead { transfer: rng.below(2) as u32, positions, manifest_bytes };
            wire::manifest_frame(&head, &manifest, if rng.below(6) == 0 { b"data" } else { b"" }).unwrap()
        }
        3 => {
            let data = vec![9; rng.below(3000) as usize];
            let manifest = Manifest::of_memory(&data, None).unwrap().encode();
            let head = ManifestHead { transfer: 0, positions: vec![0], manifest_bytes: manifest.len() as u32 };
            wire::manifest_frame(&head, &manifest, &data).unwrap()
        }
        4..7 => {
            let beyond = u64::from(rng.below(10) == 0);
            let piece = rng.below(u64::from(pieces.count()) + beyond) as u32;
            let bytes = if piece < pieces.count() { source.manifest().piece_len(piece) } else { 10 };
            let mut content = vec![0; bytes];
            if piece < pieces.count() {
                source.read(piece, 0, &mut content).unwrap();
            }
            if rng.below(10) == 0 {
                content.truncate(rng.below(100) as usize);
            }
            let offset = if rng.below(10) == 0 { rng.below(1 << 15) as u32 } else { 0 };
            let mut block = BlockHead { transfer: rng.below(2) as u32, piece, offset }.encode().to_vec();
            block.extend(content);
            block
        }
        _ => {
            let transfer = rng.below(2) as u32;
            let list = vec![rng.below(u64::from(pieces.count()) + 1) as u32; rng.below(3) as usize];
            let item = match rng.below(8) {
                0..3 => ControlItem::Ready(transfer),
                3 => ControlItem::Node(transfer, Message::Have(list)),
                4 => ControlItem::Node(transfer, Message::Request(list)),
                5 => ControlItem::Node(transfer, Message::Bitfield(PieceSet::all(pieces.count()).to_bytes())),
                6 => ControlItem::Complete(transfer),
                _ => ControlItem::Ask,
            };
            wire::put_item(&item, vec![tag::CONTROL]).unwrap()
        }
    }
}

/// The frames of a whole broadcast, of which now and then one has a wrong bit.
fn broadcast(rng: &mut Rng, sources: &Sources) -> Vec<Vec<u8>> {
    let source = sources.any(rng);
    let ready = || wire::put_item(&ControlItem::Ready(0), vec![tag::CONTROL]).unwrap();
    let manifest = source.manifest().encode();
    let head = ManifestHead { transfer: 0, positions: Vec::new(), manifest_bytes: manifest.len() as u32 };
    let mut frames = vec![ready(), wire::manifest_frame(&head, &manifest, b"").unwrap(), ready()];
    for piece in 0..source.manifest().pieces().count() {
        let mut block = BlockHead { transfer: 0, piece, offset: 0 }.encode().to_vec();
        let mut content = vec![0; source.manifest().piece_len(piece)];
        source.read(piece, 0, &mut content).unwrap();
        block.extend(content);
        frames.push(block);
    }
    if rng.below(3) == 0 {
        let frame = rng.below(frames.len() as u64) as usize;
        let at = rng.below(frames[frame].len() as u64) as usize;
        frames[frame][at] ^= 1 << rng.below(8);
    }
    frames
}

/// One session of a hostile client.
async fn attack(
    address: &str,
    rng: &mut Rng,
    sources: &Sources,
    id: [u8; 16],
    steps: u64,
) -> Result<(), multirail_net::Error> {
    let mut session = Session::connect(address, Config::new()).await?;
    let id = if rng.below(20) == 0 { group(rng) } else { id };
    match rng.below(8) {
        0 => {
            let garbage: Vec<u8> = (0..rng.below(40)).map(|_| rng.below(256) as u8).collect();
            request::send_request_bytes(&mut session, MULTICAST, &garbage).await?;
        }
        1 => {
            let hosts = (0..rng.below(3)).map(|_| ["127.0.0.1:1", "", "[::1]:1"][rng.below(3) as usize].to_owned());
            let request = MeasureRequest { hosts: hosts.collect(), rate: rng.below(2) == 0 };
            request::send_request(&mut session, MULTICAST, &MulticastRequest::Measure(request)).await?;
            let _: Vec<Option<(f64, Option<f64>)>> = request::receive(&mut session).await?;
        }
        2 if rng.below(2) == 0 => {
            let asked =
                JoinRequest { group: group(rng), port: rng.below(1 << 16) as u16, me: Some(rng.below(4) as u32) };
            request::send_request(&mut session, MULTICAST, &MulticastRequest::Join(asked)).await?;
        }
        2 => request::send_request(&mut session, MULTICAST, &MulticastRequest::Attend).await?,
        _ => {
            let hello = PeerHello {
                group: id,
                from: if rng.below(10) == 0 { rng.below(3) as u32 } else { 0 },
                ends: LinkEnds { incarnation: rng.below(3), downs: rng.below(2) as u32 },
                pass: Pass::issue(&Identity::of_process(), &id, 0, Identity::of_process().public_key()),
            };
            request::send_request(&mut session, MULTICAST, &MulticastRequest::Peer(hello)).await?;
            if let PeerReply::Welcome(..) = request::receive(&mut session).await? {
                if rng.below(2) == 0 {
                    for frame in broadcast(rng, sources) {
                        session.send(&frame).await?;
                        if frame[0] != tag::BLOCK {
                            // The store opens before a piece counts.
                            tokio::time::sleep(Duration::from_millis(rng.below(30))).await;
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(rng.below(100))).await;
                }
                for _ in 0..steps {
                    session.send(&frame(rng, sources)).await?;
                }
            }
        }
    }
    session.close().await
}

/// A coordinator's session, and links beside it.
async fn sequence(address: &str, seed: u64, sources: &Sources) {
    let rng = &mut Rng::new(seed);
    let id = group(rng);
    let coordinator = async {
        let mut session = Session::connect(address, Config::new()).await?;
        let invite_request = MulticastRequest::Invite(InviteRequest { group: id });
        request::send_request(&mut session, MULTICAST, &invite_request).await?;
        wire::send_body(session.split().0, &invite(&mut Rng::new(seed), sources)).await?;
        // The answer, a joined group or a refusal.
        let _: wire::FromHost = wire::receive_body(session.split().1, wire::MAX_STATUS_BYTES).await?;
        Ok::<_, multirail_net::Error>(session)
    };
    let coordinator = tokio::time::timeout(TIME_LIMIT, coordinator).await.expect("the server does not answer");
    for _ in 0..1 + rng.below(3) {
        let steps = rng.below(40);
        let attacked = tokio::time::timeout(TIME_LIMIT, attack(address, rng, sources, id, steps)).await;
        // The server ends sessions that break the rules; it must not forget about one.
        let _ = attacked.expect("a session hangs");
    }
    if let Ok(mut session) = coordinator {
        if rng.below(2) == 0 {
            let _ = wire::send_body(session.split().0, &wire::ToHost::Leave).await;
        }
        let _ = session.close().await;
    }
}

/// All regular files below `folder` that have their names.
fn files(folder: &Path, prefix: &str, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_file() {
            found.push((path, fs::read(entry.path()).unwrap()));
        } else if !name.starts_with(".multirail-") {
            files(&entry.path(), &format!("{path}/"), found);
        }
    }
}

/// Whatever clients send, the server goes on, nothing is outside its folder, files have only contents
/// that a manifest described, and an honest broadcast succeeds afterwards.
#[test]
fn any_sequence_of_requests_leaves_a_server_that_serves() {
    let temp = Temp::new();
    let sources = Sources::new(&temp);
    let (tell, told) = std::sync::mpsc::channel();
    let root = temp.join("to");
    let served = root.clone();
    std::thread::spawn(move || {
        let handler = Arc::new(MulticastHandler::new(&served, Config::new(), None));
        let router = Router::new().register(MULTICAST, handler);
        runtime::block_on(async {
            let config = Config::new().give_up_after(Duration::from_secs(1));
            let listener = Listener::bind(ListenConfig::new(([127, 0, 0, 1], 0), config)).await.unwrap();
            tell.send(listener.address().to_string()).unwrap();
            router.serve(listener).await
        })
    });
    let address = told.recv().unwrap();
    let honest = Sources::contents();
    for_seeds(25, |seed| {
        runtime::block_on(async {
            sequence(&address, seed, &sources).await;
            Ok(())
        })
        .unwrap();
        let mut found = Vec::new();
        files(&root, "", &mut found);
        for (path, content) in found {
            assert!(content.is_empty() || honest.contains(&content), "{path} of {} bytes", content.len());
        }
        let mut names: Vec<_> = fs::read_dir(&temp.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["from", "to"], "something outside the folder");
    });
    let last = temp.join("from").join("last");
    fs::write(&last, vec![42; 300_000]).unwrap();
    let summary = runtime::block_on(async {
        let options = Options::default();
        let hosts = [BroadcastHost { address: address.clone(), cluster: 0 }];
        let broadcast = broadcast_path(&last, &hosts, 0, &options);
        Ok(tokio::time::timeout(TIME_LIMIT, broadcast).await.expect("a broadcast hangs").unwrap())
    });
    assert_eq!(summary.unwrap().hosts[0].outcome, Outcome::Complete);
    assert_eq!(fs::read(root.join("last")).unwrap(), vec![42; 300_000]);
}

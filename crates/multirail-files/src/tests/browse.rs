//! Looking at the served folder and changing entries, with clients and servers that break the rules.

use super::*;
use crate::browse::ask::BrowseRequest;
use crate::browse::{BrowseError, Entry, EntryKind, Refusal, RefusalKind, list, make_dir, read, remove, stat};
use multirail_net::payload::VecSink;
use proptest::prelude::*;
use std::os::unix::fs::symlink;

/// Runs `client` with a server of the folder `from` for these permissions.
fn browse<T>(temp: &Temp, permissions: &str, client: impl AsyncFnOnce(&mut Session) -> T) -> T {
    let permissions = match permissions {
        "" => Permissions::default(),
        text => text.parse().unwrap(),
    };
    let scope = Scope::Below(temp.0.join("from"));
    let serve = async |session: &mut Session| loop {
        match multirail_net::request::receive_request(session).await {
            Ok(request) => {
                let FilesRequest::Browse(request) = request.parse()? else { panic!("another request") };
                crate::browse::serve(session, (&scope, &permissions), request, &Notes::default()).await?;
            }
            // The end of the test.
            Err(_) => return Ok(()),
        }
    };
    with_session(serve, async |session| {
        let done = client(session).await;
        session.send(b"").await.unwrap();
        done
    })
}

fn refusal<T: std::fmt::Debug>(result: Result<T, BrowseError>) -> RefusalKind {
    match result {
        Err(BrowseError::Refused(refusal)) => refusal.kind,
        other => panic!("{other:?}"),
    }
}

fn names_of(entries: &[Entry]) -> Vec<&str> {
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name().to_str().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn entries_and_ranges() {
    let temp = Temp::new();
    let from = temp.0.join("from");
    std::fs::create_dir(from.join("a")).unwrap();
    let content: Vec<u8> = (0..9 << 20).map(|n: u32| (n / 7) as u8).collect();
    std::fs::write(from.join("a/file"), &content).unwrap();
    std::fs::write(from.join("a/.x.0123456789abcdef.multirail-part"), "unfinished").unwrap();
    symlink("file", from.join("a/link")).unwrap();
    browse(&temp, "", async |session| {
        let path = Path::new("a/file");
        let entry = stat(session, path).await.unwrap();
        assert_eq!((entry.kind, entry.bytes, entry.name()), (EntryKind::File, 9 << 20, "file".as_ref()));
        let folder = stat(session, Path::new("")).await.unwrap();
        assert_eq!((folder.kind, folder.name()), (EntryKind::Directory, "".as_ref()));
        let entries = list(session, Path::new("a/"), 10).await.unwrap();
        assert_eq!(names_of(&entries), ["file", "link"], "and not the unfinished one");
        assert!(entries.iter().all(|entry| entry.bytes == 9 << 20 && entry.is_link == (entry.name() == "link")));
        let end = content.len() as u64;
        for (start, length) in [
            (0, 0),
            (0, 1),
            (5, 100),
            (0, end),
            (1, u64::MAX),
            (end - 1, 2),
            (end, 1),
            (end + 1, 1),
            (u64::MAX, u64::MAX),
        ] {
            let expected = content.iter().skip(start.min(end) as usize).take(length.min(end) as usize);
            let expected: Vec<u8> = expected.copied().collect();
            assert!(
                read(session, Path::new("a/link"), start, length).await.unwrap() == expected,
                "{length} from {start}"
            );
        }
        assert_eq!(refusal(read(session, Path::new("a"), 0, 1).await), RefusalKind::IsDirectory);
        assert_eq!(refusal(list(session, path, 10).await), RefusalKind::NotDirectory);
        assert_eq!(refusal(stat(session, Path::new("b")).await), RefusalKind::NotFound);
        assert_eq!(refusal(read(session, Path::new("b/c"), 0, 1).await), RefusalKind::NotFound);
    });
}

#[test]
fn a_long_list_comes_in_pages_and_has_a_limit() {
    const COUNT: usize = 900;
    let temp = Temp::new();
    for number in 0..COUNT {
        std::fs::write(temp.0.join(format!("from/{number:0200}")), "").unwrap();
    }
    browse(&temp, "", async |session| {
        let entries = list(session, Path::new(""), COUNT).await.unwrap();
        assert_eq!(names_of(&entries), temp.names("from"));
    });
    let too_many = browse(&temp, "", async |session| list(session, Path::new(""), COUNT - 1).await);
    assert!(matches!(too_many, Err(BrowseError::Session(Error::Protocol(_)))), "{too_many:?}");
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let temp = Temp::new();
    let (from, to) = (temp.0.join("from"), temp.0.join("to"));
    std::fs::write(to.join("secret"), "s").unwrap();
    std::fs::create_dir(from.join("own")).unwrap();
    symlink(&to, from.join("own/out")).unwrap();
    symlink("../../to/secret", from.join("own/file")).unwrap();
    browse(&temp, "", async |session| {
        for path in ["..", "../to", "/etc", "own/../../to", "own/out/secret", "own/file", "own/out", "a\0b", "own//x"] {
            let path = Path::new(path);
            assert_eq!(refusal(stat(session, path).await), RefusalKind::NotAllowed, "{path:?}");
            assert_eq!(refusal(list(session, path, 10).await), RefusalKind::NotAllowed, "{path:?}");
            assert_eq!(refusal(read(session, path, 0, 1).await), RefusalKind::NotAllowed, "{path:?}");
            let child = path.join("new");
            assert_eq!(refusal(make_dir(session, &child).await), RefusalKind::NotAllowed, "{child:?}");
            assert_eq!(refusal(remove(session, &path.join("secret"), true).await), RefusalKind::NotAllowed, "{path:?}");
        }
        for path in ["", "/", "."] {
            remove(session, Path::new(path), true).await.unwrap_err();
            make_dir(session, Path::new(path)).await.unwrap_err();
        }
        let entries = list(session, Path::new("own"), 10).await.unwrap();
        assert_eq!(names_of(&entries), ["file", "out"]);
        assert!(entries.iter().all(|entry| entry.kind == EntryKind::Other && entry.is_link), "{entries:?}");
        // The links are removed, and not what they lead to.
        remove(session, Path::new("own"), true).await.unwrap();
    });
    assert_eq!((temp.names("from"), temp.names("to")), (vec![], vec!["secret".to_owned()]));
}

#[test]
fn directories_are_made_and_removed() {
    let temp = Temp::new();
    browse(&temp, "", async |session| {
        make_dir(session, Path::new("a")).await.unwrap();
        make_dir(session, Path::new("a/b")).await.unwrap();
        std::fs::write(temp.0.join("from/a/b/file"), "x").unwrap();
        assert_eq!(refusal(make_dir(session, Path::new("a")).await), RefusalKind::Exists);
        assert_eq!(refusal(make_dir(session, Path::new("x/y")).await), RefusalKind::NotFound);
        assert_eq!(refusal(remove(session, Path::new("a/b"), false).await), RefusalKind::NotEmpty);
        assert_eq!(refusal(remove(session, Path::new("x"), true).await), RefusalKind::NotFound);
        remove(session, Path::new("a/b/file"), false).await.unwrap();
        remove(session, Path::new("a/b"), false).await.unwrap();
        remove(session, Path::new("a"), true).await.unwrap();
    });
    assert_eq!(temp.names("from"), [""; 0]);
}

#[test]
fn the_rights_of_a_key_hold() {
    let temp = Temp::new();
    std::fs::create_dir_all(temp.0.join("from/own")).unwrap();
    std::fs::write(temp.0.join("from/file"), "x").unwrap();
    let path = Path::new("file");
    browse(&temp, "ro", async |session| {
        stat(session, path).await.unwrap();
        assert_eq!(refusal(make_dir(session, Path::new("new")).await), RefusalKind::NotAllowed);
        assert_eq!(refusal(remove(session, path, false).await), RefusalKind::NotAllowed);
    });
    browse(&temp, "wo", async |session| {
        assert_eq!(refusal(stat(session, path).await), RefusalKind::NotAllowed);
        assert_eq!(refusal(list(session, Path::new(""), 9).await), RefusalKind::NotAllowed);
        assert_eq!(refusal(read(session, path, 0, 1).await), RefusalKind::NotAllowed);
        assert_eq!(refusal(remove(session, path, false).await), RefusalKind::NotAllowed);
        make_dir(session, Path::new("made")).await.unwrap();
    });
    browse(&temp, "root=own,quota=4k", async |session| {
        assert_eq!(refusal(stat(session, path).await), RefusalKind::NotFound);
        make_dir(session, Path::new("first")).await.unwrap();
        assert_eq!(refusal(make_dir(session, Path::new("second")).await), RefusalKind::NotAllowed, "the quota");
    });
    assert_eq!(
        (temp.names("from"), temp.names("from/own")),
        (["file", "made", "own"].map(str::to_owned).to_vec(), vec!["first".to_owned()])
    );
}

/// The server sends the length first, and holds at most one piece of the three that it has not sent.
#[test]
fn a_file_that_shrinks_while_it_is_read_is_refused() {
    let temp = Temp::new();
    let path = temp.0.join("from/file");
    std::fs::write(&path, vec![7; 12 << 20]).unwrap();
    browse(&temp, "", async |session| {
        let asked = BrowseRequest::Read { path: b"file".to_vec(), start: 0, length: 12 << 20 };
        multirail_net::request::send_request(session, FILES, &FilesRequest::Browse(asked)).await.unwrap();
        let length = multirail_net::request::receive::<Result<u64, Refusal>>(session).await.unwrap().unwrap();
        assert_eq!(length, 12 << 20);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1).unwrap();
        let mut sink = VecSink::new(16 << 20);
        loop {
            session.recv_into(&mut sink).await.unwrap();
            if sink.bytes[0] != 0 {
                break;
            }
            assert!(sink.bytes[1..].iter().all(|byte| *byte == 7), "bytes that the file never had");
        }
        let refusal: Refusal = postcard::from_bytes(&sink.bytes[1..]).unwrap();
        assert_eq!((refusal.kind, &*refusal.reason), (RefusalKind::Changed, "it became shorter while it was read"));
        assert_eq!(read(session, Path::new("file"), 0, 9).await.unwrap(), [7], "the session can be used");
    });
}

/// What a client makes of a server that sends these bodies as the answer.
fn answered<T>(bodies: &[Vec<u8>], client: impl AsyncFnOnce(&mut Session) -> Result<T, BrowseError>) -> String {
    let serve = async |session: &mut Session| {
        multirail_net::request::receive_request(session).await?;
        for body in bodies {
            session.send(body).await?;
        }
        Ok(())
    };
    match with_session(serve, client) {
        Err(BrowseError::Session(Error::Protocol(why))) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => "accepted".to_owned(),
    }
}

#[test]
fn a_client_takes_no_more_than_it_asked_for() {
    let length = |bytes: u64| postcard::to_allocvec(&Ok::<u64, ()>(bytes)).unwrap();
    let read = async |session: &mut Session| read(session, Path::new("x"), 0, 10).await;
    assert_eq!(answered(&[length(10), vec![0; 11]], read), "accepted");
    for (bodies, why) in [
        (vec![length(11)], "and 10 were wanted"),
        (vec![length(u64::MAX)], "and 10 were wanted"),
        (vec![length(10), vec![0; 12]], "an invalid piece"),
        (vec![length(10), vec![0]], "an invalid piece"),
        (vec![length(10), vec![]], "an invalid piece"),
        (vec![length(10), vec![7; 5]], "an invalid piece"),
        (vec![length(10), vec![1, 0xff, 0xff]], "an invalid answer"),
        (vec![vec![]], "an invalid request"),
    ] {
        let said = answered(&bodies, read);
        assert!(said.contains(why), "{bodies:?}: {said}");
    }
    // No entries, and it is not the last page.
    let list = async |session: &mut Session| list(session, Path::new(""), 10).await;
    assert_eq!(answered(&[vec![0, 0, 0]], list), "an empty page of a list");
    assert_eq!(answered(&[vec![0, 0, 1]], list), "accepted");
    // One entry of the name `..`: type, length, time, mode, link; the last page.
    let dots = [&[0, 1, 2][..], b"..", &[0, 0, 0, 0, 0, 0], &[1]].concat();
    let said = answered(&[dots], list);
    assert!(said.contains("a wrong name"), "{said}");
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crate::wire::read_any(&bytes);
    }
}

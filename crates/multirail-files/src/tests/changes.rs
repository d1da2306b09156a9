//! Files that are written to while they are sent.

use super::*;
use std::os::unix::fs::FileExt;

/// A writer that changes a byte while the content is sent, and sets the modification time back.
fn writer(path: PathBuf, times: u32) -> Option<Tamper> {
    let left = AtomicU32::new(times);
    Some(Arc::new(move |_, _| {
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            // The kernel's clock for times of files ticks every few milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(b"x", 0).unwrap();
            file.set_modified(modified).unwrap();
        }
    }))
}

#[test]
fn a_change_is_found_though_the_modification_time_is_set_back() {
    for (size, times) in [(200_000, 1), (200_000, u32::MAX), (2_000_000, 1), (2_000_000, u32::MAX)] {
        let temp = Temp::new();
        let from = temp.0.join("from/file");
        std::fs::write(&from, vec![7; size]).unwrap();
        let order = Order {
            origin: Origin::Local,
            sources: vec![Source::new(&from)],
            terms: Terms { recursive: false, ..Terms::default() },
            filter: None,
            on_change: None,
            side: Side::Client,
            progress: Arc::default(),
            tamper: writer(from.clone(), times),
        };
        let serve =
            async |session: &mut Session| match multirail_net::request::receive_request(session).await?.parse()? {
                FilesRequest::Put(request) => {
                    serve_put(session, &Scope::Below(temp.0.join("to")), request, &Notes::default()).await
                }
                other => panic!("{other:?}"),
            };
        let put = async |session: &mut Session| put_order(session, &order, Path::new(""), false).await.unwrap();
        let report = with_session(serve, put);
        assert_eq!(
            (report.files, report.retried, report.failed_count),
            match times {
                1 => (1, 1, 0),
                _ => (0, 1, 1),
            }
        );
        if times == 1 {
            assert_eq!(std::fs::read(temp.0.join("to/file")).unwrap(), std::fs::read(&from).unwrap());
        } else {
            assert_eq!(report.failed[0].cause, Cause::Changed, "{report:?}");
            assert_eq!(temp.names("to"), [""; 0]);
        }
    }
}

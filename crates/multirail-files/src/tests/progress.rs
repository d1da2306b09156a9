//! Progress counts what the receiver has.

use super::*;
use crate::wire::{BATCH_BYTES, Reply};
use multirail_net::payload::VecSink;
use std::time::Duration;

fn order(from: &Path, progress: &Arc<Progress>) -> Order {
    Order {
        origin: Origin::Local,
        sources: vec![Source::new(from)],
        terms: Terms { recursive: true, ..Terms::default() },
        filter: None,
        on_change: None,
        side: Side::Client,
        progress: progress.clone(),
        tamper: None,
    }
}

#[test]
fn progress_does_not_count_what_only_the_kernels_have() {
    for (files, file_bytes) in [(1, 60 << 20), (200, 50_000), (20, 500_000)] {
        let temp = Temp::new();
        for number in 0..files {
            let file = std::fs::File::create(temp.0.join(format!("from/{number}"))).unwrap();
            file.set_len(file_bytes).unwrap();
        }
        let progress = Arc::<Progress>::default();
        let order = order(&temp.0.join("from"), &progress);
        let checked = tokio::sync::Notify::new();
        let serve = async |session: &mut Session| {
            multirail_net::request::receive_request(session).await?;
            multirail_net::request::send(session, &Reply::default()).await?;
            if files == 1 {
                session.recv_into(&mut VecSink::new(BATCH_BYTES as u64)).await?;
                multirail_net::request::send(session, &Reply { go: true, ..Reply::default() }).await?;
            }
            // The client fills the buffers of the kernels meanwhile.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let (bytes, files) = (progress.bytes(), progress.files());
            assert!(bytes <= 64 << 10 && files == 0, "{bytes} bytes, {files} files");
            checked.notify_one();
            Ok(())
        };
        let put = async |session: &mut Session| {
            tokio::select! {
                report = put_order(session, &order, Path::new(""), false) => panic!("{report:?}"),
                () = checked.notified() => {}
            }
        };
        with_session(serve, put);
    }
}

#[test]
fn progress_ends_with_all_files_and_bytes() {
    let temp = Temp::new();
    let lengths = [0, 1, 57_344, 57_345, 1 << 20, (1 << 20) + 1, 9 << 20, 600_000, 10];
    for (number, length) in lengths.iter().enumerate() {
        std::fs::write(temp.0.join(format!("from/{number}")), vec![7; *length]).unwrap();
    }
    let progress = Arc::<Progress>::default();
    let order = order(&temp.0.join("from"), &progress);
    let serve = async |session: &mut Session| match multirail_net::request::receive_request(session).await?.parse()? {
        FilesRequest::Put(request) => {
            serve_put(session, &Scope::Below(temp.0.join("to")), request, &Notes::default()).await
        }
        other => panic!("{other:?}"),
    };
    let put = async |session: &mut Session| put_order(session, &order, Path::new(""), false).await.unwrap();
    let report = with_session(serve, put);
    assert_eq!((report.files, report.failed_count), (lengths.len() as u64, 0), "{report:?}");
    let total_bytes = lengths.iter().sum::<usize>() as u64;
    assert_eq!(
        (progress.bytes(), progress.expected_bytes(), progress.files()),
        (total_bytes, total_bytes, report.files)
    );
}

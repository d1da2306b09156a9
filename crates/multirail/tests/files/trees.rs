//! Whole trees and files arrive as they are.

use super::support::{Temp, Way, config, copy_with, describe, get, hash, put, recursive, server, write};
use multirail::Session;
use multirail::files::{self, Options};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SIZES: [usize; 12] =
    [0, 1, 4096, 57_343, 57_344, 57_345, 65_535, 65_536, 65_537, 131_072, (1 << 20) + 3, 20 << 20];

fn tree(temp: &Temp, root: PathBuf) {
    for size in SIZES {
        write(root.join(format!("sub/deep {size}/file-{size}")), size);
    }
    write(root.join("top"), 5000);
    std::fs::create_dir(root.join("empty")).unwrap();
    let set = |path: PathBuf, mode, seconds| {
        let file = std::fs::File::open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::new(seconds, 123_456_789)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(root.join("top"), 0o640, 1_000_000_000);
    set(root.join("empty"), 0o711, 1_100_000_000);
    set(root.join("sub/deep 1/file-1"), 0o755, 1_200_000_000);
    set(root.join("sub"), 0o750, 1_300_000_000);
    assert!(temp.parts().is_empty());
}

#[test]
fn a_tree_survives_a_round_trip() {
    for channels in [1, 3] {
        let temp = Temp::new();
        tree(&temp, temp.local("tree"));
        let copy = |way, from: PathBuf, to: &Path| copy_with(&temp, channels, way, &[from], to, &recursive()).unwrap();
        let there = copy(Way::Put, temp.local("tree"), Path::new("copy"));
        assert_eq!((there.files, there.failed_count), (SIZES.len() as u64 + 1, 0), "{there:?}");
        assert_eq!(there.bytes, SIZES.iter().sum::<usize>() as u64 + 5000);
        assert_eq!(describe(&temp.local("tree")), describe(&temp.served("copy/tree")));
        let back = copy(Way::Get, PathBuf::from("copy/tree"), &temp.local("back"));
        assert_eq!((back.files, back.bytes, back.failed_count), (there.files, there.bytes, 0));
        assert_eq!(describe(&temp.local("tree")), describe(&temp.local("back/tree")));
        assert!(temp.parts().is_empty());
    }
}

#[test]
fn every_strategy_copies_a_file_completely() {
    for &strategy in multirail::Strategy::ALL {
        let temp = Temp::new();
        write(temp.local("file"), (3 << 20) + 5);
        let address = server(&temp.served(""), config(3));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let [up, down] = runtime.block_on(async {
            let config = config(3).strategy(strategy);
            let mut session = Session::connect(&address, config).await.unwrap();
            let options = Options::new().server_strategy(strategy, 2048);
            let up = files::put(&mut session, &[temp.local("file")], Path::new("file"), &options).await.unwrap();
            let down = files::get(&mut session, &["file".into()], &temp.local("back"), &options).await.unwrap();
            session.close().await.unwrap();
            [up, down]
        });
        assert!(up.is_success() && down.is_success(), "{strategy} {up:?} {down:?}");
        assert_eq!(hash(&temp.local("file")), hash(&temp.local("back")), "{strategy}");
        assert_eq!(hash(&temp.local("file")), hash(&temp.served("file")), "{strategy}");
    }
}

#[test]
fn many_small_files_and_deep_trees() {
    let temp = Temp::new();
    for n in 0..3000 {
        write(temp.local(&format!("tree/{}/{n}", n % 7)), n % 5000);
    }
    write(temp.local(&format!("tree/{}file", "d/".repeat(100))), 10);
    let report = put(&temp, &["tree"], "copy").unwrap();
    assert_eq!((report.files, report.failed_count), (3001, 0));
    assert_eq!(describe(&temp.local("tree")), describe(&temp.served("copy/tree")));
    let report = get(&temp, &["copy/tree"], "back").unwrap();
    assert_eq!((report.files, report.failed_count), (3001, 0));
    assert_eq!(describe(&temp.local("tree")), describe(&temp.local("back/tree")));
}

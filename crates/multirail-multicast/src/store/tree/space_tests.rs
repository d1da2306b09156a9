//! Disks that are too small, or become full.

use super::testing::{complete, file, finish, open, piece, source};
use super::*;
use crate::store::testing::{Temp, names, snapshot};
use multirail_testing::{Requirement, skip};
use std::fs;

/// Mounts a file system for this thread and its children, until the thread ends.
fn with_disk(options: &str, test: impl FnOnce(&Temp) + Send) {
    let mount = |at: &Path| -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let at = std::ffi::CString::new(at.as_os_str().as_bytes())?;
        let options = std::ffi::CString::new(options)?;
        let check = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: all strings end in NUL; only this thread leaves the namespace.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
            check(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
            check(libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast()))
        }
    };
    // This thread removes it, since it is not mounted for this thread.
    let temp = Temp::new();
    let mounted = std::thread::scope(|scope| {
        let thread = scope.spawn(|| mount(&temp.join("to")).map(|()| test(&temp)));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    match mounted {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            skip(Requirement::Tmpfs, format!("cannot mount a tmpfs: {error}"));
        }
        done => done.unwrap(),
    }
}

#[test]
fn a_small_disk_is_reported_before_anything_is_written() {
    with_disk("size=256k", |temp| {
        let (fits, does_not) = (file(temp, "fits", 256 << 10), file(temp, "large", (256 << 10) + 1));
        let error = open(&does_not, &temp.join("to")).unwrap_err();
        let expected = StoreError::NoRoom { path: "to".into(), needed_bytes: 260 << 10, free_bytes: 256 << 10 };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("needs 260 KiB, "), "{error}");
        assert_eq!(names(&temp.join("to")), [""; 0]);
        let store = open(&fits, &temp.join("to")).unwrap();
        complete(&fits, &store);
        drop(store);
        // Data that is already stored needs no room.
        let store = open(&fits, &temp.join("to")).unwrap();
        finish(&store);
        drop(store);
        let store = open(&fits, &temp.join("to")).unwrap();
        assert!(store.held().is_full());
    });
}

#[test]
fn a_file_takes_room_as_its_pieces_arrive() {
    let temp = Temp::new();
    let source = file(&temp, "file", 4 << 20);
    let store = open(&source, &temp.join("to")).unwrap();
    store.write(0, &piece(&source, 0)).unwrap();
    let stat = store.folder.child_file(&part_name(0)).and_then(|file| file.metadata()).unwrap();
    assert!(stat.blocks() * 512 <= 1 << 20, "{} bytes", stat.blocks() * 512);
    complete(&source, &store);
    finish(&store);
}

#[test]
fn a_disk_without_inodes_is_reported() {
    // One for the folder itself and one for the hidden one.
    for (inodes, fine) in [(6, false), (7, true)] {
        with_disk(&format!("nr_inodes={inodes}"), |temp| {
            for name in 0..4 {
                fs::create_dir_all(temp.join("from/tree")).unwrap();
                fs::write(temp.join("from/tree").join(name.to_string()), "x").unwrap();
            }
            let source = source(&[temp.join("from/tree")]);
            match open(&source, &temp.join("to")) {
                Ok(store) => {
                    assert!(fine);
                    complete(&source, &store);
                    finish(&store);
                }
                Err(error) => assert!(
                    !fine && matches!(error, StoreError::NoRoomForFiles { needed: 5, free: 4, .. }),
                    "{error:?}"
                ),
            }
        });
    }
}

#[test]
fn writing_resumes_after_a_full_disk() {
    with_disk("size=512k", |temp| {
        let source = file(temp, "file", 256 << 10);
        let store = open(&source, &temp.join("to")).unwrap();
        store.write(0, &piece(&source, 0)).unwrap();
        let filler = temp.join("to/filler");
        assert_eq!(fs::write(&filler, vec![1; 1 << 20]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let error = store.write(5, &piece(&source, 5)).unwrap_err();
        assert_eq!(error, StoreError::Full { path: "to/file".into() });
        assert!(error.to_string().contains("no space left"), "{error}");
        assert!(!store.held().contains(5));
        fs::remove_file(filler).unwrap();
        complete(&source, &store);
        finish(&store);
        assert_eq!(snapshot(&temp.join("to/file")), snapshot(&temp.join("from/file")));
    });
}

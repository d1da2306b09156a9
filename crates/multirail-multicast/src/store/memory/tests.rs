use super::*;

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn a_receiver_gets_the_data_of_the_root() {
    let content = data(100_000);
    let root = MemoryStore::full(content.clone(), Some(1 << 14)).unwrap();
    let manifest = Arc::new(Manifest::decode(&root.manifest().encode()).unwrap());
    let store = MemoryStore::empty(manifest.clone()).unwrap();
    assert_eq!(store.finish().unwrap_err(), StoreError::Incomplete { missing: 7 });
    let mut buffer = vec![0; 1 << 14];
    for piece in [6, 0, 3, 1, 2, 5, 4] {
        assert_eq!(store.read(piece, 0, &mut buffer[..1]), Err(StoreError::NotHeld { piece }));
        let piece_bytes = manifest.piece_len(piece);
        root.read(piece, 0, &mut buffer[..piece_bytes]).unwrap();
        buffer[0] ^= 1;
        assert_eq!(store.write(piece, &buffer[..piece_bytes]), Err(StoreError::Mismatch { piece }));
        assert_eq!(store.write(piece, &buffer[..piece_bytes - 1]), Err(StoreError::Mismatch { piece }));
        buffer[0] ^= 1;
        assert_eq!(store.write(piece, &buffer[..piece_bytes]), Ok(Written::New));
        assert_eq!(store.write(piece, &buffer[..piece_bytes]), Ok(Written::Already));
    }
    assert_eq!(store.write(7, &[]), Err(StoreError::NoSuchPiece { piece: 7, pieces: 7 }));
    let end = manifest.piece_len(6) as u32;
    assert_eq!(store.read(6, end - 1, &mut buffer[..1]), Ok(()));
    assert!(matches!(store.read(6, end, &mut buffer[..1]), Err(StoreError::OutOfRange { .. })));
    assert!(matches!(store.read(6, u32::MAX, &mut buffer[..1]), Err(StoreError::OutOfRange { .. })));
    assert!(matches!(store.read(7, 0, &mut []), Err(StoreError::NoSuchPiece { .. })));
    assert!(store.held().is_full());
    assert_eq!(store.finish().unwrap().bytes, 100_000);
    assert!(store.state.read().unwrap().data == content);
}

#[test]
fn empty_data_is_complete_from_the_start() {
    let root = MemoryStore::full(Vec::new(), None).unwrap();
    let store = MemoryStore::empty(root.manifest().clone()).unwrap();
    assert!(store.held().is_full() && store.finish().is_ok());
    assert_eq!(store.state.read().unwrap().data, [0; 0]);
}

/// Large enough for several threads to hash.
#[test]
fn hashes_do_not_depend_on_the_threads() {
    let content = data(20_000_000);
    let manifest = Manifest::of_memory(&content, None).unwrap();
    let pieces = manifest.pieces();
    assert!(pieces.count() > 100);
    for piece in 0..pieces.count() {
        let range = pieces.range(piece);
        manifest.check(piece, &content[range.start as usize..range.end as usize]).unwrap();
    }
}

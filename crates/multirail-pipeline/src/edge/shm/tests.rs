use super::connection::{Receiver, Shm, read_any};
use super::ring::{MIN_RING_BYTES, Memory, Ring, Writer};
use crate::edge::frame::PREFIX_BYTES;
use crate::edge::{Connection, DEFAULT_LIMIT_BYTES, HEADER_BYTES, Message, Notifier, Wake};
use multirail_net::Error;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Both ends, in one process.
fn pair(ring_bytes: usize) -> (Shm, Shm, Arc<Memory>) {
    let (memory, _file) = Memory::new(ring_bytes).unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let end = |first, life| Shm::new(&memory, first, Notifier::new().unwrap(), life, DEFAULT_LIMIT_BYTES).unwrap();
    (end(true, one), end(false, other), memory)
}

fn message(number: usize, bytes: usize) -> Message {
    let body: Vec<u8> = (0..bytes).map(|b| (b * 31 + number * 7) as u8).collect();
    Message { head: [number as u8; HEADER_BYTES], body: body.into() }
}

/// What an end does next.
#[derive(Debug, Clone)]
enum Step {
    Push(usize),
    Flush,
    Pull,
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let bytes = prop_oneof![0..64usize, 0..5000usize, 0..40_000usize, Just(MIN_RING_BYTES - PREFIX_BYTES)];
    let step = prop_oneof![2 => bytes.prop_map(Step::Push), 3 => Just(Step::Flush), 3 => Just(Step::Pull)];
    proptest::collection::vec((any::<bool>(), step), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every message arrives once, complete and in order, whatever the two ends do when.
    #[test]
    fn messages_arrive_as_they_were_sent(steps in steps()) {
        let (one, other, _memory) = pair(MIN_RING_BYTES);
        let mut ends = [one, other];
        let mut expected: [VecDeque<Message>; 2] = Default::default();
        let mut number = 0;
        for (second, step) in steps {
            let end = &mut ends[usize::from(second)];
            match step {
                Step::Push(bytes) => {
                    number += 1;
                    end.push(message(number, bytes));
                    expected[usize::from(!second)].push_back(message(number, bytes));
                }
                Step::Flush => drop(end.flush().unwrap()),
                Step::Pull => if let Some(got) = end.pull().unwrap() {
                    let wanted = expected[usize::from(second)].pop_front().unwrap();
                    prop_assert!(got.head == wanted.head && *got.body == *wanted.body);
                },
            }
        }
        while expected.iter().any(|e| !e.is_empty()) {
            // Not both ends may sleep while there is something to do.
            let mut awake = false;
            for (end, expected) in ends.iter_mut().zip(&mut expected) {
                let to_send = !end.outgoing.is_empty();
                let before = expected.len();
                end.flush().unwrap();
                while let Some(got) = end.pull().unwrap() {
                    let wanted = expected.pop_front().unwrap();
                    prop_assert!(got.head == wanted.head && *got.body == *wanted.body);
                }
                awake |= to_send || expected.len() != before || end.sleep().unwrap() == Wake::Now;
            }
            prop_assert!(awake, "both ends would sleep");
        }
    }

    /// Whatever is written into the shared words, the other side continues or fails with an error.
    /// It never panics, and reads nothing outside of the ring.
    #[test]
    fn nonsense_is_survived(nonsense in proptest::collection::vec((any::<u8>(), any::<bool>(), any::<u64>(), any::<bool>()), 1..50)) {
        let (mut one, mut other, memory) = pair(MIN_RING_BYTES);
        for (number, (word, second, value, small)) in nonsense.into_iter().enumerate() {
            one.push(message(number, 3000));
            Ring::of(&memory, second).scribble(word, if small { value % 10_000 } else { value });
            for end in [&mut one, &mut other] {
                if end.flush().and_then(|_| end.pull()).and_then(|_| end.sleep()).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

#[test]
fn an_end_that_closes_has_its_last_messages_read() {
    let (mut one, mut other, _memory) = pair(MIN_RING_BYTES);
    one.push(message(1, 100));
    one.push(message(2, 0));
    assert!(one.flush().unwrap());
    drop(one);
    assert_eq!(other.sleep().unwrap(), Wake::Now);
    assert_eq!(other.pull().unwrap().unwrap().body.len(), 100);
    assert_eq!(other.pull().unwrap().unwrap().body.len(), 0);
    assert!(matches!(other.pull(), Err(Error::Closed)));
}

#[test]
fn an_end_that_closes_in_the_middle_of_a_message_is_lost() {
    let (mut one, mut other, _memory) = pair(MIN_RING_BYTES);
    one.push(message(1, 10_000));
    assert!(!one.flush().unwrap());
    drop(one);
    let error = loop {
        match other.pull() {
            Ok(message) => assert!(message.is_none()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Io { .. }), "{error}");
    other.push(message(1, 10_000));
    assert!(other.flush().is_err());
}

#[test]
fn a_length_beyond_the_limit_is_refused() {
    let (memory, _file) = Memory::new(MIN_RING_BYTES).unwrap();
    for (length, refused) in [(1000u64, false), (1001, true), (u64::MAX, true), (4 << 30, true)] {
        let mut writer = Writer::new(Ring::of(&memory, false));
        let mut receiver = Receiver::new(Ring::of(&memory, false), 1000);
        Ring::of(&memory, false).scribble(0, 0);
        Ring::of(&memory, false).scribble(1, 0);
        writer.write(&length.to_le_bytes());
        writer.write(&[0; HEADER_BYTES]);
        writer.publish();
        assert_eq!(receiver.pull(&Notifier::new().unwrap()).is_err(), refused, "{length}");
    }
}

#[test]
fn memory_that_could_shrink_is_refused() {
    // SAFETY: a system call with a valid name.
    let file = unsafe { libc::memfd_create(c"multirail test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    // SAFETY: just opened, and owned by nothing else.
    let file: std::fs::File = unsafe { std::os::fd::FromRawFd::from_raw_fd(file) };
    file.set_len(1 << 20).unwrap();
    assert!(Memory::of_peer(&file.into(), MIN_RING_BYTES as u64).is_err());
    let (_memory, file) = Memory::new(MIN_RING_BYTES).unwrap();
    assert!(Memory::of_peer(&file, MIN_RING_BYTES as u64).is_ok());
    assert!(Memory::of_peer(&file, 2 * MIN_RING_BYTES as u64).is_err(), "larger than it is");
    for bytes in [0, 1, MIN_RING_BYTES as u64 / 2, MIN_RING_BYTES as u64 + 1, 1 << 40, u64::MAX] {
        assert!(Memory::of_peer(&file, bytes).is_err(), "{bytes}");
    }
}

#[test]
fn the_saved_corpus_is_read_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/shm");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        read_any(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0);
}

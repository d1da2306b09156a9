//! Work on all pieces with one thread for each core.

use multirail_proto::multicast::Pieces;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{available_parallelism, scope};

/// The pieces that a thread takes at once. They are neighbours, so that each thread reads its files
/// in order.
const BATCH_PIECES: u32 = 16;
/// The least data for each thread. Starting a thread costs about as much as hashing 200 KiB.
const MIN_THREAD_BYTES: u64 = 4 << 20;
/// The most threads: a disk is not faster with more.
const MAX_THREADS: usize = 16;

/// The results of `work` for every piece, in order, without those that are `None`. `work` gets a
/// buffer of the length of the piece. Ends at the first error.
pub(crate) fn map_pieces<T: Send, E: Send>(
    pieces: &Pieces,
    work: impl Fn(u32, &mut [u8]) -> Result<Option<T>, E> + Sync,
) -> Result<Vec<(u32, T)>, E> {
    let (count, next, failed) = (pieces.count(), AtomicU32::new(0), AtomicBool::new(false));
    let run = || -> Result<Vec<(u32, T)>, E> {
        let mut done = Vec::new();
        let mut buffer = vec![0; u64::from(pieces.piece_bytes).min(pieces.total_bytes) as usize];
        while !failed.load(Ordering::Relaxed) {
            let first = next.fetch_add(BATCH_PIECES, Ordering::Relaxed);
            if first >= count {
                break;
            }
            for piece in first..(first + BATCH_PIECES).min(count) {
                let range = pieces.range(piece);
                match work(piece, &mut buffer[..(range.end - range.start) as usize]) {
                    Ok(Some(result)) => done.push((piece, result)),
                    Ok(None) => {}
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        }
        Ok(done)
    };
    let cores = available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let threads = cores.min((pieces.total_bytes / MIN_THREAD_BYTES) as usize);
    if threads < 2 {
        return run();
    }
    let results = scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut results = vec![run()];
        results.extend(others.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        results
    });
    let mut all: Vec<_> = results.into_iter().collect::<Result<Vec<_>, E>>()?.into_iter().flatten().collect();
    all.sort_unstable_by_key(|(piece, _)| *piece);
    Ok(all)
}

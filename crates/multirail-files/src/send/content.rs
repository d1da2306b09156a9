//! The content of a file: in one item, in pieces between other items, or in messages of its own.

use super::outgoing::Outgoing;
use crate::extents::data_of;
use crate::pieces::Pieces;
use crate::source::FileSource;
use crate::wire::{Item, MAX_MEDIUM_BYTES, MAX_SMALL_BYTES};
use multirail_net::error::Result;
use multirail_net::payload::Source;
use multirail_net::sync::lock;
use multirail_tree::dir::Kind;
use multirail_tree::report::{Cause, Problem, read_problem};
use multirail_tree::stat::Stat;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

/// Runs of a large file are cut at multiples of this.
const GRAIN_BYTES: u64 = 64 << 10;
/// From this length on the sender asks the receiver before it sends a file. The round trip costs
/// less than sending the file to a full disk, or sending again what an earlier copy has brought.
const ASK_FIRST_BYTES: u64 = 8 << 20;
/// The sender asks for a reply after this many small files.
const ASK_FILES: u64 = 512;
/// The sender asks for a reply after this many bytes of small files.
const ASK_BYTES: u64 = 512 << 10;

impl Outgoing<'_> {
    pub(super) async fn file(&mut self, path: &[u8], file: std::io::Result<File>, retry: bool) -> Result<()> {
        let (file, stat) = match file.and_then(|f| f.metadata().map(|m| (f, Stat::from(&m)))) {
            Ok(opened) => opened,
            Err(error) => return self.fail(path, retry, Problem::io(Cause::Read, &error)).await,
        };
        if stat.kind != Kind::File {
            return self.skip(path, "a special file").await;
        }
        if !self.extra(path, &stat, Some(&file)).await? {
            return Ok(());
        }
        if stat.bytes <= MAX_SMALL_BYTES {
            self.small(path, &file, &stat, retry).await?;
        } else if stat.bytes <= MAX_MEDIUM_BYTES && !is_sparse(&stat) {
            self.medium(path, &file, &stat, retry).await?;
        } else {
            self.large(path, &file, &stat, retry).await?;
        }
        self.unasked.files += 1;
        if self.unasked.files >= ASK_FILES || self.unasked.bytes >= ASK_BYTES {
            return self.ask().await;
        }
        Ok(())
    }

    async fn small(&mut self, path: &[u8], file: &File, stat: &Stat, retry: bool) -> Result<()> {
        let (size, meta) = (stat.bytes, stat.meta);
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        // One more byte shows whether the file has grown.
        let problem = match file.take(size + 1).read_to_end(&mut content) {
            Ok(n) if n as u64 == size => unchanged(file, stat).err(),
            Ok(_) => Some(Problem::new(Cause::Changed, "its length changed while it was read")),
            Err(error) => Some(Problem::io(Cause::Read, &error)),
        };
        match problem {
            None => {
                let hash = *blake3::hash(&content).as_bytes();
                #[cfg(test)]
                if let Some(tamper) = &self.order.tamper {
                    tamper(0, &mut content);
                }
                self.push(&Item::Small { path, meta, retry, hash, content: &content }).await?;
                self.content = content;
                self.unasked.bytes += size;
                Ok(())
            }
            Some(problem) => self.fail(path, retry, problem).await,
        }
    }

    async fn medium(&mut self, path: &[u8], file: &File, stat: &Stat, retry: bool) -> Result<()> {
        self.push(&Item::Medium { path, meta: stat.meta, retry, total_bytes: stat.bytes }).await?;
        let mut content = std::mem::take(&mut self.content);
        let mut hasher = blake3::Hasher::new();
        let mut left = stat.bytes;
        let mut sent = Ok(());
        while left > 0 && sent.is_ok() {
            content.resize(left.min(MAX_SMALL_BYTES) as usize, 0);
            sent = (&*file).read_exact(&mut content).map_err(|e| read_problem(&e));
            if sent.is_ok() {
                left -= content.len() as u64;
                hasher.update(&content);
                #[cfg(test)]
                if let Some(tamper) = &self.order.tamper {
                    tamper(0, &mut content);
                }
                self.push(&Item::Piece(&content)).await?;
                self.unasked.bytes += content.len() as u64;
                if self.unasked.bytes >= ASK_BYTES {
                    self.ask().await?;
                }
            }
        }
        self.content = content;
        let sent = sent.and_then(|()| unchanged(file, stat)).map(|()| *hasher.finalize().as_bytes());
        self.trailer(path, retry, sent).await
    }

    async fn large(&mut self, path: &[u8], file: &File, stat: &Stat, retry: bool) -> Result<()> {
        // SAFETY: the descriptor is open and no memory is passed. The result is ignored, since this
        // is advice.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_SEQUENTIAL) };
        let total_bytes = stat.bytes;
        let data = if is_sparse(stat) { data_of(file, total_bytes) } else { Pieces::whole(total_bytes) };
        let ask = data.bytes() >= ASK_FIRST_BYTES;
        let sent_data = (data != Pieces::whole(total_bytes)).then(|| data.to_wire());
        let (meta, changed) = (stat.meta, stat.changed);
        self.push(&Item::Large { path, meta, retry, total_bytes, changed, data: sent_data, ask }).await?;
        let mut wanted = Pieces::whole(data.bytes());
        if ask {
            self.expect_reply();
            self.flush().await?;
            self.wait_for(self.asked).await?;
            let Some(go) = lock(self.tally).go.take() else { return Ok(()) };
            wanted = Pieces::parse(&go, data.bytes())?;
        }
        self.flush().await?;
        let had_bytes = data.bytes() - wanted.bytes();
        self.order.progress.resume(had_bytes + (total_bytes - data.bytes()));
        let mut source = FileSource::new(file, data, wanted, self.order.progress.clone());
        #[cfg(test)]
        source.tamper.clone_from(&self.order.tamper);
        if source.total_bytes() > 0 {
            self.sender.send_from(&mut source, GRAIN_BYTES).await?;
        }
        let sent = source.finish().await.and_then(|hash| unchanged(file, stat).map(|()| hash));
        self.trailer(path, retry, sent).await?;
        // The item ends its batch, so that the receiver expects the content next.
        self.flush().await
    }

    async fn trailer(&mut self, path: &[u8], retry: bool, sent: Result<[u8; 32], Problem>) -> Result<()> {
        if let Err(problem) = &sent {
            self.note(path, retry, problem);
        }
        self.push(&Item::Trailer(sent)).await
    }
}

/// Checks that the file has not changed while it was read. A writer can set the modification time
/// back, but not the time of the inode's last change.
pub(super) fn unchanged(file: &File, before: &Stat) -> Result<(), Problem> {
    let state = |stat: &Stat| (stat.bytes, stat.meta.mtime_s, stat.meta.mtime_ns, stat.changed);
    match file.metadata() {
        Ok(now) if state(&Stat::from(&now)) == state(before) => Ok(()),
        Ok(_) => Err(Problem::new(Cause::Changed, "it was written to while it was read")),
        Err(error) => Err(Problem::io(Cause::Read, &error)),
    }
}

/// Whether a file takes less room than its length. A compressed file may have no holes either.
fn is_sparse(stat: &Stat) -> bool {
    stat.disk_bytes < stat.bytes
}

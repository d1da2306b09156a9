//! What is found in the sources, and what is done with it once the receiver has answered.

use super::content::unchanged;
use super::found::{ENTRY_BYTES, Entry, digest};
use super::outgoing::Outgoing;
use crate::wire::{Answer, Item, What};
use multirail_net::error::{Error, Result};
use multirail_net::sync::lock;
use multirail_tree::dir::Dir;
use multirail_tree::extra::{Extra, Extras};
use multirail_tree::meta::Meta;
use multirail_tree::names;
use multirail_tree::origin::{Opened, Source};
use multirail_tree::report::{Cause, Problem};
use multirail_tree::stat::Stat;
use multirail_tree::walk::{Found, Walk, meta_of};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Announcements are sent when this many wait. The receiver looks at them meanwhile.
const FLUSH_ENTRIES: usize = 512;
/// Other tasks of this thread run after this many bytes that are only hashed.
const HASH_BYTES: usize = 1 << 20;

impl Outgoing<'_> {
    /// Announces everything in the source with this index.
    pub(super) async fn source(&mut self, index: usize) -> Result<()> {
        let source = &self.order.sources[index];
        let top = names::bytes(Path::new(&source.top));
        let opened = self.order.origin.open(&source.path);
        let is_dir = matches!(opened, Ok(Opened::Dir(_)));
        if self.order.filter.as_ref().is_some_and(|filter| filter.excludes(top, is_dir)) {
            return Ok(());
        }
        match opened {
            Ok(Opened::File(file)) => match file.metadata() {
                Ok(stat) => self.found_file(index, top, &Stat::from(&stat), || Ok(file)).await?,
                Err(error) => self.fail(top, false, Problem::io(Cause::Read, &error)).await?,
            },
            Ok(Opened::Special) => self.skip(top, "a special file").await?,
            Ok(Opened::Dir(_)) if !self.order.terms.recursive => {
                self.fail(top, false, Problem::new(Cause::Read, "it is a directory; copy those with -r")).await?;
            }
            Ok(Opened::Dir(dir)) => {
                self.tree(index, Walk::new(dir, top).filtered(self.order.filter.clone())).await?;
            }
            Err(problem) => self.fail(top, false, problem).await?,
        }
        self.settle(false).await
    }

    async fn tree(&mut self, index: usize, mut walk: Walk) -> Result<()> {
        while let Some(found) = walk.find_next() {
            let path = walk.path();
            match found {
                Found::Directory => self.push(&Item::Directory { path }).await?,
                Found::DirectoryEnd(meta) => {
                    let extra = self.extra_of_dir(walk.ended())?;
                    let entry = Entry::DirectoryEnd { path: path.to_vec(), meta, extra };
                    self.queue.push(entry, path.len() + ENTRY_BYTES, false);
                }
                Found::File(stat) => self.found_file(index, path, &stat, || walk.open()).await?,
                Found::Symlink(stat) => match walk.read_link() {
                    Ok(target) => {
                        self.announce(path, stat.meta, What::Symlink(&target), None).await?;
                        self.queue.push(Entry::Symlink, ENTRY_BYTES, true);
                    }
                    Err(error) => self.fail(path, false, Problem::io(Cause::Read, &error)).await?,
                },
                Found::Other(what) => self.skip(path, what).await?,
                Found::Failed(problem) => self.fail(path, false, problem).await?,
            }
            self.settle(false).await?;
        }
        Ok(())
    }

    /// Announces a file. `open` opens it if it has to be.
    async fn found_file(
        &mut self,
        source: usize,
        path: &[u8],
        stat: &Stat,
        open: impl FnOnce() -> io::Result<File>,
    ) -> Result<()> {
        let terms = &self.order.terms;
        if terms.hard_links
            && stat.links > 1
            && let Some(to) = self.links.find(stat, path)
        {
            let bytes = path.len() + to.len() + ENTRY_BYTES;
            self.queue.push(Entry::HardLink { path: path.to_vec(), to }, bytes, false);
            return Ok(());
        }
        let mut extra = None;
        if terms.extras.any() {
            let file = terms.extras.needs_file().then(open).transpose();
            match file.and_then(|file| terms.extras.read(stat, file.as_ref())) {
                Ok(read) => extra = Some(digest(&read)?),
                Err(error) => return self.fail(path, false, Problem::io(Cause::Read, &error)).await,
            }
        }
        self.announce(path, stat.meta, What::File(stat.bytes), extra).await?;
        self.order.progress.expect(stat.bytes);
        let entry = Entry::File { source, path: path.to_vec(), bytes: stat.bytes };
        self.queue.push(entry, path.len() + ENTRY_BYTES, true);
        Ok(())
    }

    async fn announce(&mut self, path: &[u8], meta: Meta, what: What<'_>, extra: Option<[u8; 16]>) -> Result<()> {
        let shared = path.iter().zip(&self.announced).take_while(|(one, other)| one == other).count();
        self.push(&Item::Entry { shared: shared as u64, rest: &path[shared..], meta, what, extra }).await?;
        self.announced.truncate(shared);
        self.announced.extend_from_slice(&path[shared..]);
        lock(self.tally).answers.expect();
        self.unflushed += 1;
        if self.unflushed >= FLUSH_ENTRIES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Deals with the entries that are answered. If the queue is full, or with `all`, it waits for
    /// answers.
    pub(super) async fn settle(&mut self, all: bool) -> Result<()> {
        let mut must_wait = all || self.queue.is_full();
        loop {
            let seen = self.replied.borrow_and_update().all;
            loop {
                let next = self.queue.take(&mut lock(self.tally).answers);
                let Some((entry, answer)) = next else { break };
                self.deal_with(entry, answer.unwrap_or(Answer::Done)).await?;
                must_wait = all;
            }
            if self.queue.is_empty() || !must_wait {
                return Ok(());
            }
            self.flush().await?;
            self.replied.wait_for(|r| r.all > seen).await.map_err(|_| Error::Closed)?;
        }
    }

    async fn deal_with(&mut self, entry: Entry, answer: Answer) -> Result<()> {
        match (entry, answer) {
            (Entry::Symlink, _) => Ok(()),
            (Entry::File { bytes, .. }, Answer::Done) => {
                self.order.progress.expect_less(bytes);
                Ok(())
            }
            (Entry::DirectoryEnd { path, meta, extra }, _) => {
                if let Some(extra) = extra {
                    self.push(&Item::Extra(extra)).await?;
                }
                self.push(&Item::DirectoryEnd { path: &path, meta }).await
            }
            (Entry::HardLink { path, to }, _) => self.push(&Item::HardLink { path: &path, to: &to }).await,
            (Entry::File { source, path, bytes }, answer) => {
                let progress = &self.order.progress;
                let opened = self.opener.open(&self.order.origin, source, &self.order.sources[source], &path);
                let file = match opened {
                    Ok(file) => file,
                    Err(problem) => return self.fail(&path, false, problem).await,
                };
                match (answer, file) {
                    (Answer::Properties, Ok(file)) => {
                        progress.expect_less(bytes);
                        self.same(&path, &file).await
                    }
                    (Answer::Compare(hash), Ok(file)) if self.is_same(&file, &hash).await => {
                        progress.expect_less(bytes);
                        self.same(&path, &file).await
                    }
                    (_, file) => self.file(&path, file, false).await,
                }
            }
        }
    }

    /// Whether the content of `file` has this hash. A file that cannot be read has not.
    async fn is_same(&mut self, mut file: &File, hash: &[u8; 32]) -> bool {
        let Ok(before) = file.metadata() else { return false };
        let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; HASH_BYTES]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => drop(hasher.update(&buffer[..n])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            tokio::task::yield_now().await;
        }
        hasher.finalize().as_bytes() == hash
            && unchanged(file, &Stat::from(&before)).is_ok()
            && io::Seek::rewind(&mut file).is_ok()
    }

    /// Sends the properties of a file whose content the receiver has.
    async fn same(&mut self, path: &[u8], file: &File) -> Result<()> {
        match file.metadata().map(|stat| Stat::from(&stat)) {
            Ok(stat) => {
                if self.extra(path, &stat, Some(file)).await? {
                    self.push(&Item::Same { path, meta: stat.meta }).await?;
                }
                Ok(())
            }
            Err(error) => self.fail(path, false, Problem::io(Cause::Read, &error)).await,
        }
    }

    /// Sends owner and attributes for the next item, if they are copied. Returns whether they could be
    /// read.
    pub(super) async fn extra(&mut self, path: &[u8], stat: &Stat, file: Option<&File>) -> Result<bool> {
        if !self.order.terms.extras.any() {
            return Ok(true);
        }
        match self.order.terms.extras.read(stat, file) {
            Ok(extra) => self.push(&Item::Extra(extra)).await.map(|()| true),
            Err(error) => self.fail(path, false, Problem::io(Cause::Read, &error)).await.map(|()| false),
        }
    }

    /// Owner and attributes of a directory, if they are copied.
    fn extra_of_dir(&self, dir: Option<&Dir>) -> Result<Option<Extra>> {
        let extras: Extras = self.order.terms.extras;
        let Some(dir) = dir.filter(|_| extras.any()) else { return Ok(None) };
        let read = dir.as_file().and_then(|file| extras.read(&Stat::from(&file.metadata()?), Some(&file)));
        read.map(Some).map_err(Error::io("reading the properties of a directory"))
    }

    /// Sends a file again that did not arrive unchanged.
    pub(super) async fn file_again(&mut self, path: &[u8]) -> Result<()> {
        let Ok(wire) = names::WirePath::parse(path) else { return Ok(()) };
        let is_source = |source: &Source| source.wire_top() == wire.top;
        let Some(index) = self.order.sources.iter().position(is_source) else { return Ok(()) };
        let source = &self.order.sources[index];
        match self.opener.open(&self.order.origin, index, source, path) {
            Err(problem) => return self.fail(path, true, problem).await,
            Ok(file) => self.file(path, file, true).await?,
        }
        // Storing the file has changed the time of its directory.
        let Some((_, _, dir)) = self.opener.last.as_ref().filter(|_| wire.below != Path::new("")) else {
            return Ok(());
        };
        let (Ok(meta), end) = (meta_of(dir), path.iter().rposition(|b| *b == b'/').unwrap_or(0)) else {
            return Ok(());
        };
        let extra = dir.as_file().and_then(|file| Ok((Stat::from(&file.metadata()?), file)));
        if let Ok((stat, file)) = extra
            && self.extra(&path[..end], &stat, Some(&file)).await?
        {
            self.push(&Item::DirectoryEnd { path: &path[..end], meta }).await?;
        }
        Ok(())
    }
}

//! Announced entries: what the destination has of them, and what it needs.

use super::incoming::Incoming;
use crate::plan::{Announced, Plan, plan};
use crate::send::digest;
use crate::wire::{Answer, Change, What};
use multirail_net::error::{Error, Result};
use multirail_net::permissions::Right;
use multirail_net::quota::{Quota, Reservation};
use multirail_tree::dir::{Dir, Kind};
use multirail_tree::extra::Extra;
use multirail_tree::meta::Meta;
use multirail_tree::names;
use multirail_tree::part::{self, Part, replace_by_link};
use multirail_tree::report::{Cause, Problem};
use multirail_tree::stat::Stat;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

/// Files from this length on are hashed by another thread, so that this one keeps the session alive.
const LONG_BYTES: u64 = 1 << 20;
const HASH_BYTES: usize = 256 << 10;

impl Incoming<'_> {
    pub(super) async fn directory(&mut self, path: &[u8]) -> Result<()> {
        if self.order.terms.dry_run {
            self.target.expect_dir(path);
            return match self.target.kind(path) {
                Ok(None) => self.would(Change::Directory, path).await,
                Ok(Some(Kind::Directory)) => Ok(()),
                Ok(Some(kind)) => {
                    self.fail(path, true, Problem::new(Cause::Write, format!("there is {} of that name", kind.name())))
                        .await
                }
                Err(problem) => self.fail(path, true, problem).await,
            };
        }
        let reserved = match self.target.kind(path) {
            Ok(Some(_)) => Ok(Reservation::default()),
            _ => self.reserve(Quota::cost(0)),
        };
        let made = reserved.and_then(|reserved| self.target.make_dir(path, self.order.sync).map(|()| reserved.keep()));
        match made {
            Ok(()) => self.counts.directories += 1,
            Err(problem) => self.fail(path, true, problem).await?,
        }
        Ok(())
    }

    /// Answers an announcement.
    pub(super) async fn entry(
        &mut self,
        shared: u64,
        rest: &[u8],
        meta: Meta,
        what: What<'_>,
        extra: Option<[u8; 16]>,
    ) -> Result<()> {
        let shared = usize::try_from(shared).ok().filter(|shared| *shared <= self.announced.len());
        let Some(shared) = shared.filter(|shared| shared + rest.len() <= names::MAX_PATH_BYTES + 1) else {
            return Err(Error::Protocol("an announcement with an invalid path".to_owned()));
        };
        let mut path = std::mem::take(&mut self.announced);
        path.truncate(shared);
        path.extend_from_slice(rest);
        let answered = match what {
            What::File(bytes) => self.announced_file(&path, &Announced { meta, bytes, extra }).await,
            What::Symlink(target) => self.symlink(&path, &meta, target).await,
        };
        self.announced = path;
        let answer = answered?;
        self.answer(answer).await
    }

    async fn announced_file(&mut self, path: &[u8], announced: &Announced) -> Result<Answer> {
        let there = match self.target.place(path) {
            Ok(there) => there,
            Err(problem) => return self.fail(path, true, problem).await.map(|()| Answer::Done),
        };
        let mut extra = None;
        if let (Some((dir, name, stat)), true) = (&there, announced.extra.is_some()) {
            // What cannot be read is set again.
            extra = self.extra_of(dir, name, stat).ok();
        }
        let known = there.as_ref().map(|(_, _, stat)| (stat, extra));
        // An answer other than `send` tells what is there.
        let known = known.filter(|(stat, _)| self.may_read() || matches!(stat.kind, Kind::Directory | Kind::Special));
        let plan = plan(announced, known, self.order.terms.by_content);
        if self.order.terms.dry_run {
            let change = match plan {
                Plan::Keep => None,
                Plan::SetMode | Plan::Properties => Some(Change::Properties),
                Plan::MakeEmpty | Plan::Send => Some(Change::Send),
                Plan::Compare => Some(Change::Compare),
                Plan::Refuse(kind) => return self.refuse(path, kind).await,
            };
            match change {
                Some(change) => self.would(change, path).await?,
                None => self.keep_entry(),
            }
            return Ok(Answer::Done);
        }
        match (plan, there) {
            (Plan::Keep, _) if !self.order.sync => self.keep_entry(),
            (Plan::Keep | Plan::SetMode | Plan::Compare, Some((dir, name, _))) => match dir.child_file(&name) {
                Err(_) => return Ok(self.want(announced)),
                Ok(file) if plan == Plan::Keep => {
                    let synced = self.sync(&file, &dir);
                    self.kept(path, synced).await?;
                }
                Ok(file) if plan == Plan::SetMode => {
                    let applied = part::apply(&file, &announced.meta).and_then(|()| self.sync(&file, &dir));
                    self.kept(path, applied).await?;
                }
                Ok(file) => {
                    return Ok(match hash(file, announced.bytes).await {
                        Ok(hash) => {
                            self.order.progress.expect(announced.bytes);
                            Answer::Compare(hash)
                        }
                        Err(_) => self.want(announced),
                    });
                }
            },
            (Plan::MakeEmpty, there) => {
                let made = self.make_empty(path, &announced.meta, there.is_some());
                match made {
                    Ok(()) => {
                        self.counts.files += 1;
                        self.order.progress.add_files(1);
                    }
                    Err(problem) => self.fail(path, true, problem).await?,
                }
            }
            (Plan::Properties, _) => return Ok(Answer::Properties),
            (Plan::Refuse(kind), _) => return self.refuse(path, kind).await,
            (Plan::Send | Plan::Keep | Plan::SetMode | Plan::Compare, _) => return Ok(self.want(announced)),
        }
        Ok(Answer::Done)
    }

    /// With `--fsync`, writes a file that was there and its name to disk. An earlier copy may have left
    /// them in the system's cache.
    fn sync(&self, file: &File, dir: &Dir) -> io::Result<()> {
        if self.order.sync { file.sync_all().and_then(|()| dir.sync()) } else { Ok(()) }
    }

    /// Counts an entry that the destination had, unless what was done with it failed.
    async fn kept(&mut self, path: &[u8], done: io::Result<()>) -> Result<()> {
        match done {
            Ok(()) => self.keep_entry(),
            Err(error) => self.fail(path, true, Problem::io(Cause::Write, &error)).await?,
        }
        Ok(())
    }

    /// Whether the sender may learn what is there.
    fn may_read(&self) -> bool {
        self.order.permissions.has(Right::Read)
    }

    fn want(&self, announced: &Announced) -> Answer {
        self.order.progress.expect(announced.bytes);
        Answer::Send
    }

    async fn refuse(&mut self, path: &[u8], kind: Kind) -> Result<Answer> {
        let problem = Problem::new(Cause::Write, format!("there is {} of that name", kind.name()));
        self.fail(path, true, problem).await.map(|()| Answer::Done)
    }

    /// The hash of owner and attributes of a file, as far as they are copied.
    fn extra_of(&self, dir: &Dir, name: &OsStr, stat: &Stat) -> io::Result<[u8; 16]> {
        let extras = self.order.terms.extras;
        let file = extras.needs_file().then(|| dir.child_file(name)).transpose()?;
        digest(&extras.read(stat, file.as_ref())?).map_err(io::Error::other)
    }

    /// Makes an empty file. Nothing is written to it, so it needs no part.
    fn make_empty(&mut self, path: &[u8], meta: &Meta, replaces: bool) -> Result<(), Problem> {
        let sync = self.order.sync;
        let reserved = self.reserve(Quota::cost(0))?;
        let (dir, name) = self.target.file(path, sync)?;
        let io = |e: io::Error| Problem::io(Cause::Write, &e);
        if !replaces && !sync {
            match dir.create(&name) {
                Ok(file) => {
                    reserved.keep();
                    return part::apply(&file, meta).map_err(io);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(error)),
            }
        }
        Part::create(dir, &name).and_then(|part| part.commit(meta, sync)).map_err(io)?;
        reserved.keep();
        Ok(())
    }

    /// Sets the properties of a file whose content is the sender's.
    pub(super) async fn same(&mut self, path: &[u8], meta: &Meta, extra: Option<Extra>) -> Result<()> {
        let extras = self.order.terms.extras;
        let opened = self.target.file(path, self.order.sync);
        let applied = opened.and_then(|(dir, name)| {
            let applied = dir.child_file(&name).and_then(|file| {
                extra.map_or(Ok(()), |extra| extras.apply(&extra, &file))?;
                part::apply(&file, meta)?;
                self.sync(&file, &dir)
            });
            applied.map_err(|e| Problem::io(Cause::Write, &e))
        });
        match applied {
            Ok(()) => self.keep_entry(),
            Err(problem) => self.fail(path, true, problem).await?,
        }
        Ok(())
    }

    /// Makes a symbolic link, unless it is there.
    async fn symlink(&mut self, path: &[u8], meta: &Meta, target: &[u8]) -> Result<Answer> {
        let there = match self.target.place(path) {
            Ok(there) => there,
            Err(problem) => return self.fail(path, true, problem).await.map(|()| Answer::Done),
        };
        let same_time = |stat: &Stat| (stat.meta.mtime_s, stat.meta.mtime_ns) == (meta.mtime_s, meta.mtime_ns);
        match &there {
            Some((dir, name, stat))
                if self.may_read()
                    && stat.kind == Kind::Symlink
                    && same_time(stat)
                    && dir.read_link(name).is_ok_and(|there| there == target) =>
            {
                let is_safe = !self.order.sync || self.order.terms.dry_run;
                let synced = if is_safe { Ok(()) } else { dir.sync() };
                self.kept(path, synced).await?;
                return Ok(Answer::Done);
            }
            Some((_, _, stat)) if !matches!(stat.kind, Kind::Symlink | Kind::File) => {
                return self.refuse(path, stat.kind).await;
            }
            _ => {}
        }
        if self.order.terms.dry_run {
            self.would(Change::Link, path).await?;
            return Ok(Answer::Done);
        }
        let made = self.reserve(Quota::cost(0)).and_then(|reserved| {
            let (dir, name) = self.target.file(path, self.order.sync)?;
            let replaces = there.is_some();
            make_symlink(&dir, &name, target, meta, replaces, self.order.sync)
                .map_err(|e| Problem::io(Cause::Write, &e))?;
            reserved.keep();
            Ok(())
        });
        match made {
            Ok(()) => self.counts.links += 1,
            Err(problem) => self.fail(path, true, problem).await?,
        }
        Ok(Answer::Done)
    }

    pub(super) async fn hard_link(&mut self, path: &[u8], to: &[u8]) -> Result<()> {
        if self.order.terms.dry_run {
            let inode = |there: Option<(Arc<Dir>, OsString, Stat)>| there.map(|(_, _, stat)| stat.inode);
            let both = (self.target.place(path).map(inode), self.target.place(to).map(inode));
            return match both {
                (Ok(Some(one)), Ok(Some(other))) if one == other => {
                    self.keep_entry();
                    Ok(())
                }
                (Ok(_), Ok(_)) => self.would(Change::Link, path).await,
                (Err(problem), _) | (_, Err(problem)) => self.fail(path, true, problem).await,
            };
        }
        let linked =
            self.reserve(Quota::cost(0)).map(|reserved| (self.target.link(path, to, self.order.sync), reserved));
        match linked.and_then(|(linked, reserved)| linked.map(|is_new| (is_new, reserved))) {
            Ok((true, reserved)) => {
                reserved.keep();
                self.counts.links += 1;
            }
            Ok((false, _)) => self.keep_entry(),
            // The first one arrived changed, for example. The file itself is sent then.
            Err(problem) => self.fail(path, false, Problem { cause: Cause::Changed, ..problem }).await?,
        }
        Ok(())
    }
}

fn make_symlink(dir: &Dir, name: &OsStr, target: &[u8], meta: &Meta, replaces: bool, sync: bool) -> io::Result<()> {
    let make = |name: &OsStr| {
        dir.make_symlink(target, name)?;
        dir.set_modified(name, meta.mtime_s, meta.mtime_ns)
    };
    if replaces {
        replace_by_link(dir, name, make)?;
    } else {
        make(name)?;
    }
    if sync { dir.sync() } else { Ok(()) }
}

/// The hash of `file`, which has `bytes`.
async fn hash(mut file: File, bytes: u64) -> io::Result<[u8; 32]> {
    let mut hash = move || {
        let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; HASH_BYTES]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(*hasher.finalize().as_bytes()),
                Ok(n) => drop(hasher.update(&buffer[..n])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    };
    if bytes < LONG_BYTES { hash() } else { tokio::task::spawn_blocking(hash).await.map_err(io::Error::other)? }
}

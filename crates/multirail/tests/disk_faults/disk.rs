//! A disk in memory that knows what is safe from a power cut.
//!
//! Everything has two states: as programs see it, and as it is on the disk. Content, mode and times of a
//! file get safe by `fsync` of the file, names by `fsync` of their directory. When the power is cut, some of
//! what was not safe survives: single sectors of contents, lengths, properties, and changes of names.

use super::inode::{Inode, Kind, Meta};
use multirail_proto::rng::Rng;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// The number of the root directory.
pub const ROOT: u64 = 1;
/// One change in this many takes longer.
const SLOW_ONE_OF: u64 = 64;
const SLOW: Duration = Duration::from_millis(1);

pub type Result<T> = std::result::Result<T, i32>;

/// What fails: changes from number `at` on, `count` of them.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub at: u64,
    pub count: u64,
    pub errno: i32,
}

/// A change of names, in the order in which programs made them.
#[derive(Debug, Clone)]
struct Change {
    /// Where the name was.
    from: Option<(u64, OsString)>,
    /// Where the name is.
    to: Option<(u64, OsString)>,
    inode: u64,
    is_safe: bool,
}

/// What a power cut leaves of changes of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The first ones, as a file system with a journal. Every `fsync` makes all earlier ones safe.
    Journal,
    /// Any, as POSIX allows.
    Any,
}

#[derive(Debug)]
pub struct State {
    pub inodes: HashMap<u64, Inode>,
    changes: Vec<Change>,
    order: Order,
    next: u64,
    rng: Rng,
    /// How many changes were asked for.
    pub asked: u64,
    fault: Option<Fault>,
    /// How many changes have failed.
    pub failed: u64,
    /// The power is cut when this many changes were asked for.
    cut_at: Option<u64>,
    is_off: bool,
    /// The last changes, for a test that fails.
    pub trace: Vec<String>,
}

#[derive(Debug)]
pub struct Disk(Mutex<State>);

impl Disk {
    pub fn new(seed: u64, order: Order) -> Self {
        let inodes = HashMap::from([(ROOT, Inode::new(Kind::Directory, 0o755))]);
        let mut state = State {
            inodes,
            changes: Vec::new(),
            order,
            next: ROOT + 1,
            rng: Rng::new(seed),
            asked: 0,
            fault: None,
            failed: 0,
            cut_at: None,
            is_off: false,
            trace: Vec::new(),
        };
        state.make_safe();
        Self(Mutex::new(state))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Puts a file on the disk, with its directories, before anything runs.
    pub fn put(&self, path: &Path, content: &[u8], mode: u32, modified: SystemTime) {
        let mut state = self.lock();
        let mut dir = ROOT;
        for name in path.parent().into_iter().flatten() {
            dir = match state.find(dir, name) {
                Some(inode) => inode,
                None => state.add(dir, name, Inode::new(Kind::Directory, 0o755)),
            };
        }
        let mut file = Inode::new(Kind::File, mode);
        file.write(0, content);
        file.now.modified = modified;
        state.add(dir, path.file_name().unwrap(), file);
        state.make_safe();
    }

    /// What survives when the power is cut now. The disk fails from now on.
    pub fn cut(&self) -> Disk {
        let mut state = self.lock();
        state.is_off = true;
        let mut rng = Rng::new(state.rng.next_u64());
        Disk(Mutex::new(state.survivors(&mut rng)))
    }

    pub fn cut_at(&self, change: u64) {
        self.lock().cut_at = Some(change);
    }

    pub fn fail(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }
}

impl State {
    /// Checks that the disk can be read.
    pub fn reads(&self) -> Result<()> {
        if self.is_off { Err(libc::EIO) } else { Ok(()) }
    }

    /// Begins a change, and returns whether it fails although it is carried out.
    pub fn begin(&mut self, what: impl FnOnce(&State) -> String) -> Result<Option<i32>> {
        self.reads()?;
        self.asked += 1;
        let text = format!("{} {}", self.asked, what(self));
        self.trace.push(text);
        if self.rng.below(SLOW_ONE_OF) == 0 {
            std::thread::sleep(SLOW);
        }
        if self.cut_at.is_some_and(|at| self.asked >= at) {
            self.is_off = true;
            self.note("power cut");
            return if self.rng.below(2) == 0 { Err(libc::EIO) } else { Ok(Some(libc::EIO)) };
        }
        match self.fault {
            Some(fault) if (fault.at..fault.at.saturating_add(fault.count)).contains(&self.asked) => {
                self.failed += 1;
                self.note("failed");
                Err(fault.errno)
            }
            _ => Ok(None),
        }
    }

    fn note(&mut self, what: &str) {
        if let Some(last) = self.trace.last_mut() {
            last.push_str(": ");
            last.push_str(what);
        }
    }

    pub fn inode(&mut self, number: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or(libc::ENOENT)
    }

    pub fn find(&self, dir: u64, name: &OsStr) -> Option<u64> {
        self.inodes.get(&dir)?.names.get(name).copied()
    }

    /// The name of an inode, for the trace.
    pub fn name_of(&self, inode: u64) -> String {
        let named = |(_, dir): (&u64, &Inode)| {
            dir.names.iter().find(|(_, other)| **other == inode).map(|(name, _)| name.to_string_lossy().into_owned())
        };
        self.inodes.iter().find_map(named).unwrap_or_else(|| format!("inode {inode}"))
    }

    /// Gives a new inode a name and returns its number.
    pub fn add(&mut self, dir: u64, name: &OsStr, inode: Inode) -> u64 {
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, inode);
        self.change(None, Some((dir, name)), number);
        number
    }

    /// Changes a name. What had the new one loses it.
    pub fn change(&mut self, from: Option<(u64, &OsStr)>, to: Option<(u64, &OsStr)>, inode: u64) {
        let owned = |place: Option<(u64, &OsStr)>| place.map(|(dir, name)| (dir, name.to_owned()));
        let change = Change { from: owned(from), to: owned(to), inode, is_safe: false };
        apply(&mut self.inodes, &change);
        self.changes.push(change);
    }

    /// `fsync` of a file or directory.
    pub fn sync(&mut self, number: u64) -> Result<()> {
        let order = self.order;
        let inode = self.inode(number)?;
        inode.sync();
        for change in &mut self.changes {
            let is_in = |place: &Option<(u64, OsString)>| place.as_ref().is_some_and(|(dir, _)| *dir == number);
            change.is_safe |= order == Order::Journal || is_in(&change.from) || is_in(&change.to);
        }
        Ok(())
    }

    /// Makes everything safe.
    fn make_safe(&mut self) {
        self.changes.clear();
        for inode in self.inodes.values_mut() {
            inode.sync();
            inode.safe_names = inode.names.clone();
        }
    }

    fn survivors(&self, rng: &mut Rng) -> State {
        // With a journal, changes up to some moment survive.
        let first = self.changes.iter().rposition(|change| change.is_safe).map_or(0, |at| at + 1);
        let until = first + rng.below((self.changes.len() - first) as u64 + 1) as usize;
        let share = [0.0, 0.1, 0.5, 0.9, 1.0][rng.below(5) as usize];
        let mut inodes: HashMap<u64, Inode> =
            self.inodes.iter().map(|(number, inode)| (*number, inode.survivor(rng, share))).collect();
        for (at, change) in self.changes.iter().enumerate() {
            let survives = match self.order {
                Order::Journal => at < until,
                Order::Any => change.is_safe || rng.unit() < share,
            };
            if survives {
                apply(&mut inodes, change);
            }
        }
        let mut state = State {
            inodes,
            changes: Vec::new(),
            order: self.order,
            next: self.next,
            rng: Rng::new(rng.next_u64()),
            asked: 0,
            fault: None,
            failed: 0,
            cut_at: None,
            is_off: false,
            trace: vec!["after a power cut".to_owned()],
        };
        state.make_safe();
        state
    }
}

/// Applies a change of names. Changes before it may be missing.
fn apply(inodes: &mut HashMap<u64, Inode>, change: &Change) {
    if let Some((dir, name)) = &change.from {
        let is_full = change.to.is_none() && inodes.get(&change.inode).is_some_and(|inode| !inode.names.is_empty());
        if let Some(dir) = inodes.get_mut(dir)
            && dir.names.get(name) == Some(&change.inode)
            && !is_full
        {
            dir.names.remove(name);
            dir.touch();
        }
    }
    if let Some((dir, name)) = &change.to
        && let Some(dir) = inodes.get_mut(dir)
    {
        dir.names.insert(name.clone(), change.inode);
        dir.touch();
    }
}

impl State {
    /// How many names an inode has.
    pub fn links(&self, number: u64) -> u32 {
        self.inodes.values().flat_map(|dir| dir.names.values()).filter(|inode| **inode == number).count() as u32
    }

    /// Sets properties of an inode.
    pub fn set(&mut self, number: u64, set: impl FnOnce(&mut Meta)) -> Result<()> {
        let inode = self.inode(number)?;
        set(&mut inode.now);
        inode.now.changed = SystemTime::now();
        Ok(())
    }
}

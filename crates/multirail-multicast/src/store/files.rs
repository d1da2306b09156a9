//! Files that are kept open for a while.

use std::fs::File;
use std::sync::Arc;

/// The most files open at once for one store. A few peers at a time ask for neighbouring pieces.
const MAX_OPEN: usize = 32;

/// Open files by the number of their entry, the last used at the end.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Vec<(u32, Arc<File>)>);

impl OpenFiles {
    pub(super) fn get(&mut self, entry: u32) -> Option<Arc<File>> {
        let at = self.0.iter().position(|(known, _)| *known == entry)?;
        let found = self.0.remove(at);
        let file = found.1.clone();
        self.0.push(found);
        Some(file)
    }

    /// Keeps `file` for `entry` and returns it.
    pub(super) fn insert(&mut self, entry: u32, file: File) -> Arc<File> {
        self.remove(entry);
        if self.0.len() >= MAX_OPEN {
            self.0.remove(0);
        }
        let file = Arc::new(file);
        self.0.push((entry, file.clone()));
        file
    }

    pub(super) fn remove(&mut self, entry: u32) {
        self.0.retain(|(known, _)| *known != entry);
    }
}

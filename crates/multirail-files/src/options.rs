//! What a user chooses for a copy.

use super::wire::Change;
use multirail_net::Strategy;
use multirail_tree::extra::Extras;
use multirail_tree::filter::Rule;
use multirail_tree::report::Progress;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Is told what a copy would do: [`Options::dry_run`].
pub type OnChange = Arc<dyn Fn(Change, &Path) + Send + Sync>;

/// Options of a copy.
///
/// ```
/// let options = multirail_files::Options::new().recursive(true).sync(true);
/// assert!(options.recursive && options.server_strategy.is_none());
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// Copy directories with everything in them. Default: no.
    pub recursive: bool,
    /// Compare the contents of files of the same length. Default: a file with the same length and
    /// modification time counts as unchanged. This costs reading both files.
    pub by_content: bool,
    /// Make hard links again that are below one source. Default: no, each is a file of its own. This
    /// costs the memory of the path of each such file, up to 64 MiB.
    pub hard_links: bool,
    /// Owner, extended attributes and access control lists. Default: none of them.
    pub extras: Extras,
    /// What is left out; the first rule that matches decides. Default: nothing.
    pub rules: Vec<Rule>,
    /// Delete what is in a copied directory and not in the source, after everything was copied, and
    /// only if the source could be read whole. What the rules exclude stays. Default: no.
    pub delete: bool,
    /// Copy nothing, and tell what would be done. Default: no.
    pub dry_run: Option<OnChange>,
    /// Give a file its name only when its content is on the disk, and count it only when its name
    /// and its directories are, too. Default: no. This costs the disk's latency for each file and
    /// directory.
    pub sync: bool,
    /// The strategy of the server in [`get`](super::get), and the fragment of the papers' strategies
    /// in bytes. Default: the server's own. A [`put`](super::put) uses the session's configuration.
    pub server_strategy: Option<(Strategy, u32)>,
    /// Whether what the server sends in [`get`](super::get) yields to other traffic. Default: no. A
    /// [`put`](super::put) uses the session's configuration.
    pub server_background: bool,
    /// Counters that show the progress of the copy.
    pub progress: Arc<Progress>,
}

/// The options that both sides need.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Terms {
    pub recursive: bool,
    pub by_content: bool,
    pub hard_links: bool,
    pub extras: Extras,
    pub rules: Vec<Rule>,
    pub delete: bool,
    pub dry_run: bool,
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether directories are copied with everything in them.
    #[must_use]
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.recursive = recursive;
        self
    }

    /// Sets whether the contents of files of the same length are compared.
    #[must_use]
    pub fn by_content(mut self, by_content: bool) -> Self {
        self.by_content = by_content;
        self
    }

    /// Sets whether hard links are made again.
    #[must_use]
    pub fn hard_links(mut self, hard_links: bool) -> Self {
        self.hard_links = hard_links;
        self
    }

    /// Sets what else belongs to each entry.
    #[must_use]
    pub fn extras(mut self, extras: Extras) -> Self {
        self.extras = extras;
        self
    }

    /// Sets what is left out.
    #[must_use]
    pub fn rules(mut self, rules: Vec<Rule>) -> Self {
        self.rules = rules;
        self
    }

    /// Sets whether what the source does not have is deleted.
    #[must_use]
    pub fn delete(mut self, delete: bool) -> Self {
        self.delete = delete;
        self
    }

    /// Sets whether nothing is copied, and who is told what would be done.
    #[must_use]
    pub fn dry_run(mut self, on_change: Option<OnChange>) -> Self {
        self.dry_run = on_change;
        self
    }

    /// Sets whether files and directories are on the disk before they are counted.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Sets the strategy of the server in [`get`](super::get), and the fragment of the papers'
    /// strategies in bytes.
    #[must_use]
    pub fn server_strategy(mut self, strategy: Strategy, fragment_bytes: u32) -> Self {
        self.server_strategy = Some((strategy, fragment_bytes));
        self
    }

    /// Sets whether what the server sends in [`get`](super::get) yields to other traffic.
    #[must_use]
    pub fn server_background(mut self, background: bool) -> Self {
        self.server_background = background;
        self
    }

    /// Sets the counters that show the progress of the copy.
    #[must_use]
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.progress = progress;
        self
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            recursive: self.recursive,
            by_content: self.by_content,
            hard_links: self.hard_links,
            extras: self.extras,
            rules: self.rules.clone(),
            delete: self.delete,
            dry_run: self.dry_run.is_some(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("terms", &self.terms()).finish_non_exhaustive()
    }
}

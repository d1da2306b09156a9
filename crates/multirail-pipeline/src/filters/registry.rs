//! Filters that a host can make by the name of their kind.

use super::rehearsal;
use crate::error::{PipelineError, Result};
use crate::runtime::{CopyInfo, Failure, Filter, MakeFilter};
use multirail_net::permissions::{Permissions, Right};
use multirail_tree::root::Root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Makes a filter of one kind for one copy, with the parameters from the group.
type Maker = Arc<dyn Fn(&Value, &CopyInfo) -> Result<Box<dyn Filter>, Failure> + Send + Sync>;

/// The kinds of filters that a host knows.
#[derive(Clone, Default)]
pub struct Filters {
    makers: BTreeMap<String, Maker>,
    /// Kinds that the host does not make, with the reason.
    refused: BTreeMap<String, String>,
    /// The kinds that use files of this folder, or none, and are made again for a client that may do less.
    pub(super) built_in: Option<PathBuf>,
}

impl Filters {
    /// No kinds.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a kind.
    ///
    /// `make` is called in the thread of each copy, with the parameters from the group. Its error
    /// fails the unit of work.
    pub fn with<F: Filter + 'static>(
        mut self,
        kind: &str,
        make: impl Fn(&Value, &CopyInfo) -> Result<F, Failure> + Send + Sync + 'static,
    ) -> Self {
        let maker: Maker = Arc::new(move |parameters, copy| Ok(Box::new(make(parameters, copy)?)));
        self.refused.remove(kind);
        self.makers.insert(kind.to_owned(), maker);
        self
    }

    /// Removes a kind, and sets the reason that is reported when a group asks for it.
    pub fn without(mut self, kind: &str, why: &str) -> Self {
        self.makers.remove(kind);
        self.refused.insert(kind.to_owned(), why.to_owned());
        self
    }

    /// The kinds that a client with these permissions may use. A built-in kind keeps to the client's folder
    /// and rights. All other kinds may do anything, as programs do.
    pub(crate) fn of_client(&self, permissions: &Permissions) -> Self {
        let Some(folder) = &self.built_in else { return self.clone().without_programs(permissions, &Self::none()) };
        let own = Self::for_root(Root::new(folder, permissions.below()));
        let mut limited = self.clone().without_programs(permissions, &own);
        for (kind, right) in [("read", Right::Read), ("write", Right::Write)] {
            if !limited.makers.contains_key(kind) {
                continue;
            }
            let refused = permissions.check(right).err();
            let bounded = (kind == "write" && permissions.quota().is_some())
                .then(|| "no quota bounds what it writes, and this key has one".to_owned());
            limited = match (refused.or(bounded), own.makers.get(kind)) {
                (Some(why), _) => limited.without(kind, &why),
                (None, Some(make)) if !permissions.below().as_os_str().is_empty() => {
                    limited.makers.insert(kind.to_owned(), make.clone());
                    limited
                }
                (None, _) => limited,
            };
        }
        limited
    }

    /// Without the kinds that are not among those of `harmless`, unless the client may start programs.
    fn without_programs(mut self, permissions: &Permissions, harmless: &Self) -> Self {
        if let Err(why) = permissions.check(Right::Programs) {
            for kind in self.kinds().into_iter().filter(|kind| !harmless.makers.contains_key(kind)) {
                self = self.without(&kind, &why);
            }
        }
        self
    }

    /// The names of all kinds, sorted.
    pub fn kinds(&self) -> Vec<String> {
        self.makers.keys().cloned().collect()
    }

    /// The maker of a filter.
    pub(crate) fn maker(&self, kind: &str, parameters: Value) -> Result<MakeFilter> {
        if let Some(make) = rehearsal::maker(kind) {
            return Ok(make);
        }
        if let Some(why) = self.refused.get(kind) {
            return Err(PipelineError::Refused { kind: kind.to_owned(), why: why.clone() });
        }
        let maker = self.makers.get(kind).cloned().ok_or_else(|| PipelineError::Unknown {
            what: "the kind of filter",
            name: kind.to_owned(),
            known: self.kinds(),
        })?;
        Ok(Arc::new(move |copy| maker(&parameters, copy)))
    }

    /// The maker of a filter that has no copy on this host.
    pub(crate) fn not_here() -> MakeFilter {
        Arc::new(|_| Err("this filter has no copy on this host".into()))
    }
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.makers.keys()).finish()
    }
}

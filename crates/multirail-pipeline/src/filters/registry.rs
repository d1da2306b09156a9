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
        let own = match &self.built_in {
            Some(folder) => Self::for_root(Root::new(folder, permissions.below())),
            None => Self::none(),
        };
        let mut limited = self.clone();
        let (programs, is_below) = (permissions.check(Right::Programs), !permissions.below().as_os_str().is_empty());
        for kind in self.kinds() {
            let right = match kind.as_str() {
                "read" => Some(Right::Read),
                "write" => Some(Right::Write),
                _ => None,
            };
            let refused = right.and_then(|right| permissions.check(right).err());
            let unbounded = (kind == "write" && permissions.quota().is_some())
                .then(|| "no quota bounds what it writes, and this key has one".to_owned());
            match (refused.or(unbounded), &programs, own.makers.get(&kind)) {
                (Some(why), _, _) => limited = limited.without(&kind, &why),
                (None, Err(why), None) => limited = limited.without(&kind, why),
                (None, Err(_), Some(make)) => drop(limited.makers.insert(kind, make.clone())),
                (None, Ok(()), Some(make)) if is_below && right.is_some() => {
                    limited.makers.insert(kind, make.clone());
                }
                (None, Ok(()), _) => {}
            }
        }
        limited
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

//! Filters that a host can make by name, with parameters.

use super::copy::Make;
use super::error::{PipelineError, Result};
use super::filter::{Failure, Filter, Place};
use super::rehearsal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Makes a filter of one kind: with the parameters of the group's author, for one copy.
type Maker = Arc<dyn Fn(&Value, &Place) -> Result<Box<dyn Filter>, Failure> + Send + Sync>;

/// The kinds of filters that a host knows.
#[derive(Clone, Default)]
pub struct Filters {
    makers: BTreeMap<String, Maker>,
    /// Those that it could make, and why it does not.
    refused: BTreeMap<String, String>,
}

impl Filters {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a kind. `make` gets the parameters as they stand in the group's description, and which copy it is for.
    pub fn with<F: Filter + 'static>(
        mut self,
        kind: &str,
        make: impl Fn(&Value, &Place) -> Result<F, Failure> + Send + Sync + 'static,
    ) -> Self {
        let maker: Maker = Arc::new(move |parameters, place| Ok(Box::new(make(parameters, place)?)));
        self.refused.remove(kind);
        self.makers.insert(kind.to_owned(), maker);
        self
    }

    /// Takes a kind away, or says why one is not there.
    pub fn without(mut self, kind: &str, why: &str) -> Self {
        self.makers.remove(kind);
        self.refused.insert(kind.to_owned(), why.to_owned());
        self
    }

    /// Their names.
    pub fn kinds(&self) -> Vec<String> {
        self.makers.keys().cloned().collect()
    }

    pub(super) fn make(&self, kind: &str, parameters: Value) -> Result<Make> {
        if let Some(make) = rehearsal::make(kind) {
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
        Ok(Arc::new(move |place| maker(&parameters, place)))
    }
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.makers.keys()).finish()
    }
}

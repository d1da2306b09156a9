//! The thread of a copy, which does one unit of work after the other.

use super::copy_runtime::CopyRuntime;
use super::counters::{Activity, Counters};
use super::failure::{Failure, StreamError, panic_text};
use super::filter::Filter;
use super::info::{CopyInfo, QueuedUnit, UnitOfWork};
use super::io::Io;
use multirail_proto::pipeline::progress::Outcome;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Creates a copy's filter, in the copy's thread.
pub(crate) type MakeFilter = Arc<dyn Fn(&CopyInfo) -> Result<Box<dyn Filter>, Failure> + Send + Sync>;

/// One copy of a filter, in its thread.
pub(crate) struct Worker {
    info: CopyInfo,
    make: MakeFilter,
    runtime: CopyRuntime,
}

impl Worker {
    pub(crate) fn new(info: CopyInfo, make: MakeFilter, runtime: CopyRuntime) -> Self {
        Self { info, make, runtime }
    }

    /// The copy's counters, for other threads.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        self.runtime.counters.clone()
    }

    /// Does units of work until their sender is dropped, and reports how each ended.
    pub(crate) fn run(mut self, units: &Receiver<QueuedUnit>, report: impl Fn(u32, Outcome)) {
        // The filter is made in this thread and stays in it, since it need not be `Send`.
        let mut filter = None;
        while let Ok(unit) = units.recv() {
            let unit = unit.get();
            let outcome = self.run_unit(&mut filter, unit);
            self.runtime.counters.switch_to(Activity::Idle);
            if outcome != Outcome::Done {
                // The state of a filter that failed is unknown. Dropping it may panic as well.
                drop(catch_unwind(AssertUnwindSafe(|| filter.take())));
                self.runtime.abandon();
            }
            report(unit.number, outcome);
        }
    }

    fn run_unit(&mut self, filter: &mut Option<Box<dyn Filter>>, unit: &UnitOfWork) -> Outcome {
        match catch_unwind(AssertUnwindSafe(|| self.work(filter, unit))) {
            Ok(Ok(())) => Outcome::Done,
            Ok(Err(failure)) => match failure.downcast_ref() {
                Some(StreamError::Aborted) => Outcome::Aborted,
                Some(StreamError::PeerLost { filter, copy, cause, .. }) => {
                    Outcome::PeerLost { filter: filter.clone(), copy: *copy as u32, cause: cause.clone() }
                }
                _ => Outcome::Failed(failure.to_string()),
            },
            Err(panic) => Outcome::Failed(panic_text(&*panic)),
        }
    }

    fn work(&mut self, filter: &mut Option<Box<dyn Filter>>, unit: &UnitOfWork) -> Result<(), Failure> {
        self.runtime.begin(unit.number)?;
        let filter = match filter {
            Some(filter) => filter,
            none => none.insert((self.make)(&self.info)?),
        };
        filter.init(unit)?;
        filter.process(&mut Io::new(&mut self.runtime, &self.info, unit))?;
        self.runtime.counters.switch_to(Activity::Idle);
        // Input that the filter did not read.
        while self.runtime.read()?.is_some() {}
        self.runtime.end()?;
        filter.finalize()
    }
}

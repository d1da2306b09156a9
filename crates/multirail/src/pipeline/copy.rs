//! The thread of a copy: one unit of work after the other.

use super::counters::Doing;
use super::filter::{Failure, Filter, Place, Stop, Unit, panic_text};
use super::io::Io;
use super::site::Site;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Makes a copy's filter, in the copy's thread.
pub type Make = Arc<dyn Fn(&Place) -> Result<Box<dyn Filter>, Failure> + Send + Sync>;

/// How a copy's part of a unit of work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It failed, and why.
    Failed(String),
    /// Another one failed.
    GivenUp,
}

/// Runs until nobody can ask for units any more.
pub(super) fn run(
    place: &Place,
    make: &Make,
    mut site: Site,
    units: &Receiver<Arc<Unit>>,
    tell: impl Fn(u32, Outcome),
) {
    let mut filter = None;
    while let Ok(unit) = units.recv() {
        let outcome = run_unit(place, make, &mut site, &mut filter, &unit);
        site.counters.turn_to(Doing::Nothing);
        if outcome != Outcome::Done {
            // Nobody knows what state it is in.
            drop(catch_unwind(AssertUnwindSafe(|| filter.take())));
            site.abandon();
        }
        tell(unit.number, outcome);
    }
}

fn run_unit(place: &Place, make: &Make, site: &mut Site, filter: &mut Option<Box<dyn Filter>>, unit: &Unit) -> Outcome {
    let work = || -> Result<(), Failure> {
        site.begin(unit.number)?;
        let filter = match filter {
            Some(filter) => filter,
            none => none.insert(make(place)?),
        };
        filter.init(unit)?;
        filter.process(&mut Io::new(site, place, unit))?;
        site.counters.turn_to(Doing::Nothing);
        // What it did not want to read.
        while site.read()?.is_some() {}
        site.end()?;
        filter.finalize()
    };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Outcome::Done,
        Ok(Err(failure)) if matches!(failure.downcast_ref(), Some(Stop::Aborted)) => Outcome::GivenUp,
        Ok(Err(failure)) => Outcome::Failed(failure.to_string()),
        Err(panic) => Outcome::Failed(panic_text(&*panic)),
    }
}

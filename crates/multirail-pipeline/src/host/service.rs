//! A host's side of the session with the coordinator.

use super::messages::{FilterKind, FromHost, ToHost, receive, send};
use super::prepared::PreparedHost;
use super::registry::RunRegistry;
use super::running::{OnEnded, RunningHost};
use crate::runtime::{MakeFilter, QueuedUnit, UnitOfWork};
use multirail_net::budget::MemoryBudget;
use multirail_net::error::{Error, Result};
use multirail_net::record::Notes;
use multirail_net::session::{Receiver, Sender};
use multirail_net::sync::lock;
use multirail_net::{Config, Session};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often a host reports what its copies have done.
const STATUS_PERIOD: Duration = Duration::from_millis(250);

/// What a waiting unit of work takes beside its query: entries in the queues of the copies.
const UNIT_BYTES: u64 = 16 << 10;

/// The copies, once they run.
type SharedCopies = Arc<Mutex<Option<RunningHost>>>;

/// Takes part in a group until the coordinator ends it or is lost.
pub(super) async fn serve(registry: &RunRegistry, session: Session, notes: &Notes) -> Result<()> {
    notes.operation("run");
    let permissions = session.client().permissions.clone();
    let (mut sender, mut receiver) = session.into_split();
    let ToHost::Prepare { layout, me, kinds } = receive(&mut receiver).await? else {
        return Err(Error::Protocol("a pipeline whose first message is not its group".to_owned()));
    };
    for FilterKind { kind, parameters } in &kinds {
        notes.detail(format!("{kind} {parameters}"));
    }
    let (_registered, host, makers) = match registry.add(layout, me, kinds, &permissions) {
        Ok(added) => added,
        Err(why) => {
            notes.refused(&why);
            return send(&mut sender, &FromHost::Refused(why)).await;
        }
    };
    send(&mut sender, &FromHost::Prepared).await?;
    let (reports, next_report) = unbounded_channel();
    let copies = SharedCopies::default();
    let mut joining = Some(Joining { host, makers, config: registry.config.clone(), reports });
    let ended = tokio::select! {
        ended = report(&mut sender, next_report, &copies) => ended,
        ended = obey(&mut receiver, &mut joining, &copies, &registry.budget) => ended,
    };
    drop(lock(&copies).take());
    match ended {
        Err(Error::Closed) => Ok(()),
        ended => ended,
    }
}

/// Sends reports as they come, and the copies' counters now and then.
async fn report(
    sender: &mut Sender,
    mut next_report: UnboundedReceiver<FromHost>,
    copies: &SharedCopies,
) -> Result<()> {
    let mut status = tokio::time::interval(STATUS_PERIOD);
    loop {
        tokio::select! {
            biased;
            next = next_report.recv() => match next {
                Some(next) => send(sender, &next).await?,
                // Everything that could report has ended; the coordinator ends the session.
                None => return std::future::pending().await,
            },
            _ = status.tick() => {
                let counts = lock(copies).as_ref().map(RunningHost::counts);
                if let Some(counts) = counts {
                    let counts = counts.into_iter().map(|(f, c, counts)| (f as u32, c as u32, counts));
                    send(sender, &FromHost::Counts(counts.collect())).await?;
                }
            }
        }
    }
}

/// Does what the coordinator says.
async fn obey(
    receiver: &mut Receiver,
    joining: &mut Option<Joining>,
    copies: &SharedCopies,
    budget: &MemoryBudget,
) -> Result<()> {
    loop {
        match receive(receiver).await? {
            ToHost::Join => match joining.take() {
                Some(joining) => joining.start(copies.clone())?,
                None => return Err(Error::Protocol("a second request to join".to_owned())),
            },
            ToHost::Unit { number, query } => {
                let claim = budget.claim(UNIT_BYTES + query.len() as u64)?;
                if let Some(running) = &*lock(copies) {
                    running.begin(&QueuedUnit::new(UnitOfWork { number, query }, Some(claim)));
                }
            }
            ToHost::Abort { unit } => {
                if let Some(running) = &*lock(copies) {
                    running.abort(unit);
                }
            }
            ToHost::Prepare { .. } => return Err(Error::Protocol("a second group in one session".to_owned())),
        }
    }
}

/// A host that has not made its edges.
struct Joining {
    host: Arc<PreparedHost>,
    makers: Vec<MakeFilter>,
    config: Config,
    reports: UnboundedSender<FromHost>,
}

impl Joining {
    /// Makes the edges in a thread, since that blocks.
    fn start(self, copies: SharedCopies) -> Result<()> {
        let spawned = std::thread::Builder::new().name("join".to_owned()).spawn(move || {
            let Self { host, makers, config, reports } = self;
            let on_copy_ended = reports.clone();
            let on_ended: OnEnded = Arc::new(move |filter, copy, unit, outcome, counts| {
                let (filter, copy) = (filter as u32, copy as u32);
                // Without a receiver the session has ended, and the copies end as well.
                let _ = on_copy_ended.send(FromHost::Ended { filter, copy, unit, outcome, counts });
            });
            let answer = match host.join(&config, &makers, &on_ended) {
                Ok(joined) => {
                    *lock(&copies) = Some(joined);
                    FromHost::Joined
                }
                Err(why) => FromHost::Refused(why),
            };
            let _ = reports.send(answer);
        });
        spawned.map(drop).map_err(Error::io("starting a thread"))
    }
}

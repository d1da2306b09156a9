//! The hosts of a group beyond the first: what the coordinator tells them and they tell it, over a session each.

use super::copy::{Make, Outcome};
use super::counters::Counts;
use super::filter::Unit;
use super::host::{EdgeId, Host, Layout, RunId, Running, Tell};
use super::registry::Filters;
use crate::error::{Error, Result};
use crate::payload::VecSink;
use crate::service::{self, Request};
use crate::session::{Receiver, Sender};
use crate::transport::connect::Arrival;
use crate::{Config, Session};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// No message is longer: a query is in it, or a group.
const MAX_BODY_BYTES: u64 = 4 << 20;
/// Groups that a server takes part in at a time.
const MAX_RUNS: usize = 64;
/// How often a host tells what its copies do.
const STATUS_EVERY: Duration = Duration::from_millis(250);
/// How long an edge waits for its group: the coordinator's session may be slower.
const RUN_PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a host shall do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum ToHost {
    /// Comes first.
    Prepare {
        layout: Layout,
        me: u32,
        kinds: Vec<Kind>,
    },
    /// All hosts are prepared: make the edges.
    Join,
    Unit {
        number: u32,
        query: Vec<u8>,
    },
    GiveUp {
        unit: u32,
    },
}

/// A filter as a server can make it; nothing for those that have no copy there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kind {
    pub kind: String,
    /// JSON.
    pub parameters: String,
}

/// What it tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum FromHost {
    Prepared,
    Joined,
    /// Instead of either.
    Refused(String),
    Ended {
        filter: u32,
        copy: u32,
        unit: u32,
        outcome: Ended,
        /// What the copy has done so far.
        counts: Counts,
    },
    Counts(Vec<(u32, u32, Counts)>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Ended {
    Done,
    Failed(String),
    GivenUp,
}

/// The groups that a server takes part in.
#[derive(Debug)]
pub struct Registry {
    filters: Filters,
    config: Config,
    runs: Mutex<HashMap<RunId, Arc<Host>>>,
}

impl Registry {
    /// Of a server that can make these filters, and dials others with `config`.
    pub fn new(filters: Filters, config: Config) -> Self {
        Self { filters, config, runs: Mutex::default() }
    }

    /// An edge that another host dialled.
    pub fn arrive(&self, id: EdgeId, arrival: Arrival) -> Result<()> {
        let until = Instant::now() + RUN_PATIENCE;
        loop {
            let host = self.runs().get(&id.run).cloned();
            match host {
                Some(host) => return host.arrive(id, arrival),
                None if Instant::now() > until => return arrival.refuse("there is no such group here"),
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Arc<Host>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, layout: Layout, me: u32, kinds: Vec<Kind>) -> Result<(Arc<Host>, Vec<Make>), String> {
        let filters = layout.graph.filters();
        let here = |f: usize| filters[f].hosts.contains(&me);
        if kinds.len() != filters.len() || me == 0 || me as usize >= layout.hosts.len() {
            return Err("a group that does not fit together".to_owned());
        }
        if filters.iter().flat_map(|f| &f.hosts).any(|h| *h as usize >= layout.hosts.len())
            || layout.transports.len() != layout.graph.streams().len()
        {
            return Err("a group that does not fit together".to_owned());
        }
        let mut makes = Vec::new();
        for (f, kind) in kinds.into_iter().enumerate() {
            let nowhere: Make = Arc::new(|_| Err("this filter has no copy here".into()));
            makes.push(if here(f) {
                let parameters = serde_json::from_str(&kind.parameters).map_err(|e| e.to_string())?;
                self.filters.make(&kind.kind, parameters).map_err(|e| e.to_string())?
            } else {
                nowhere
            });
        }
        let run = layout.run;
        let host = Host::new(Arc::new(layout), me).map_err(|e| e.to_string())?;
        let mut runs = self.runs();
        if runs.len() >= MAX_RUNS {
            return Err(format!("this server takes part in {MAX_RUNS} pipelines; try again later"));
        }
        runs.insert(run, host.clone());
        Ok((host, makes))
    }
}

/// Takes part in a group until its coordinator ends it, or is gone.
pub(crate) async fn serve(registry: &Arc<Registry>, session: Session) -> Result<()> {
    let (mut sender, mut receiver) = session.into_split();
    let ToHost::Prepare { layout, me, kinds } = receive(&mut receiver).await? else {
        return Err(Error::Protocol("a pipeline that does not begin with its group".to_owned()));
    };
    let run = layout.run;
    let (host, makes) = match registry.prepare(layout, me, kinds) {
        Ok(prepared) => prepared,
        Err(why) => return send(&mut sender, &FromHost::Refused(why)).await,
    };
    let _leave = Leave { registry, run };
    send(&mut sender, &FromHost::Prepared).await?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let running: Arc<Mutex<Option<Running>>> = Arc::default();
    let telling = async {
        let mut status = tokio::time::interval(STATUS_EVERY);
        loop {
            tokio::select! {
                biased;
                next = told.recv() => match next {
                    Some(next) => send(&mut sender, &next).await?,
                    None => return Ok(()),
                },
                _ = status.tick() => {
                    let counts = lock(&running).as_ref().map(Running::counts);
                    if let Some(counts) = counts {
                        let counts = counts.into_iter().map(|(f, c, counts)| (f as u32, c as u32, counts));
                        send(&mut sender, &FromHost::Counts(counts.collect())).await?;
                    }
                }
            }
        }
    };
    let listening = async {
        let mut start = Some((host, makes));
        loop {
            match receive(&mut receiver).await? {
                ToHost::Join => {
                    let Some((host, makes)) = start.take() else {
                        return Err(Error::Protocol("it says join twice".to_owned()));
                    };
                    let (config, running, tell) = (registry.config.clone(), running.clone(), tell.clone());
                    // Making edges blocks.
                    let begun = std::thread::Builder::new().name("join".to_owned()).spawn(move || {
                        let to = tell.clone();
                        let ended: Tell = Arc::new(move |f, c, unit, outcome, counts| {
                            let (filter, copy) = (f as u32, c as u32);
                            let outcome = outcome.into();
                            let _ = to.send(FromHost::Ended { filter, copy, unit, outcome, counts });
                        });
                        let answer = match host.join(&config, &makes, &ended) {
                            Ok(joined) => {
                                *lock(&running) = Some(joined);
                                FromHost::Joined
                            }
                            Err(why) => FromHost::Refused(why),
                        };
                        let _ = tell.send(answer);
                    });
                    begun.map_err(Error::io("starting a thread"))?;
                }
                ToHost::Unit { number, query } => {
                    if let Some(running) = &*lock(&running) {
                        running.begin(&Arc::new(Unit { number, query }));
                    }
                }
                ToHost::GiveUp { unit } => {
                    if let Some(running) = &*lock(&running) {
                        running.give_up(unit);
                    }
                }
                ToHost::Prepare { .. } => return Err(Error::Protocol("it sends a second group".to_owned())),
            }
        }
    };
    let ended = tokio::select! {
        ended = telling => ended,
        ended = listening => ended,
    };
    drop(lock(&running).take());
    match ended {
        Err(Error::Closed) => Ok(()),
        ended => ended,
    }
}

struct Leave<'a> {
    registry: &'a Registry,
    run: RunId,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.registry.runs().remove(&self.run);
    }
}

/// The coordinator's side: speaks to one host until `orders` end or the host is gone. `hear` gets all that it tells.
pub(super) async fn command(
    address: &str,
    config: Config,
    mut orders: mpsc::UnboundedReceiver<ToHost>,
    hear: impl Fn(FromHost),
) -> Result<()> {
    let mut session = Session::connect(address, config).await?;
    service::send(&mut session, &Request::Pipeline).await?;
    let (mut sender, mut receiver) = session.into_split();
    let telling = async {
        while let Some(order) = orders.recv().await {
            send(&mut sender, &order).await?;
        }
        sender.finish().await
    };
    let hearing = async {
        loop {
            hear(receive(&mut receiver).await?);
        }
    };
    tokio::select! {
        told = telling => told,
        heard = hearing => heard,
    }
}

async fn send<T: Serialize>(sender: &mut Sender, body: &T) -> Result<()> {
    let bytes = postcard::to_allocvec(body).map_err(|e| Error::Protocol(format!("it does not encode: {e}")))?;
    sender.send(&bytes).await
}

async fn receive<T: DeserializeOwned>(receiver: &mut Receiver) -> Result<T> {
    let mut sink = VecSink::new(MAX_BODY_BYTES);
    receiver.recv_into(&mut sink).await?;
    match postcard::take_from_bytes(&sink.bytes) {
        Ok((body, [])) => Ok(body),
        _ => Err(Error::Protocol("a message about a pipeline that does not parse".to_owned())),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Ended::Done,
            Outcome::Failed(why) => Ended::Failed(why),
            Outcome::GivenUp => Ended::GivenUp,
        }
    }
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Done => Outcome::Done,
            Ended::Failed(why) => Outcome::Failed(why),
            Ended::GivenUp => Outcome::GivenUp,
        }
    }
}

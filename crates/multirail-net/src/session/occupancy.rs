//! The places of a server: how many authenticated peers it serves, and which of them are idle.

use crate::handshake::Refusal;
use crate::sync::lock;
use crate::tcp_info::tcp_info;
use multirail_proto::admission::{Entered, PlaceId, Places, Source};
use multirail_proto::session::Time;
use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The places of a listener.
#[derive(Debug)]
pub(super) struct Occupancy {
    state: Mutex<State>,
    /// The origin of the machine's time.
    origin: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until there is a limit.
    places: Option<Places>,
    /// Whether no further peer gets a place.
    closed: bool,
    ends: HashMap<PlaceId, Arc<End>>,
}

/// How a peer in a place is ended.
#[derive(Debug, Default)]
struct End {
    notify: Notify,
    /// A connection of its own that may be ended while it is idle.
    connection: Mutex<Option<TcpStream>>,
}

/// The place of one authenticated peer. Dropping it makes room for another one.
#[derive(Debug)]
pub(crate) struct Place {
    occupancy: Arc<Occupancy>,
    id: PlaceId,
    end: Arc<End>,
}

impl Occupancy {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), origin: Instant::now() })
    }

    /// Sets how many peers get a place from now on.
    pub(super) fn set_limit(&self, limit: usize) {
        lock(&self.state).places = Some(Places::new(limit));
    }

    /// Gives no place to anyone from now on.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
    }

    /// Gives a place to an authenticated peer; without a limit, it needs none.
    ///
    /// # Errors
    ///
    /// [`Refusal::Busy`] if all places are taken, and it may get the place of no idle client;
    /// [`Refusal::Stopping`] after [`Occupancy::close`].
    pub(super) fn enter(self: &Arc<Self>, source: Source) -> Result<Option<Place>, Refusal> {
        let mut state = lock(&self.state);
        let now = self.now();
        let State { places, ends, closed } = &mut *state;
        if *closed {
            return Err(Refusal::Stopping);
        }
        let Some(places) = places else { return Ok(None) };
        if places.is_full() {
            for (id, end) in &*ends {
                if let Some(connection) = &*lock(&end.connection) {
                    places.set_idle(*id, Some(Time::after(now.since_zero().saturating_sub(idle_time(connection)))));
                }
            }
        }
        let entered = places.enter(now, source);
        let Entered { place: id, ended } =
            entered.map_err(|full| Refusal::Busy { sessions: u32::try_from(full.taken).unwrap_or(u32::MAX) })?;
        if let Some(end) = ended.and_then(|ended| ends.remove(&ended)) {
            end.notify.notify_one();
            if let Some(connection) = &*lock(&end.connection) {
                let _ = connection.shutdown(std::net::Shutdown::Both);
            }
        }
        let end = Arc::<End>::default();
        ends.insert(id, end.clone());
        Ok(Some(Place { occupancy: self.clone(), id, end }))
    }

    fn now(&self) -> Time {
        Time::after(self.origin.elapsed())
    }

    fn set_idle(&self, id: PlaceId, since: Option<Time>) {
        if let Some(places) = &mut lock(&self.state).places {
            places.set_idle(id, since);
        }
    }
}

impl Place {
    /// Notes that the peer has nothing under way.
    pub(crate) fn set_idle(&self) {
        self.occupancy.set_idle(self.id, Some(self.occupancy.now()));
    }

    /// Notes that the peer has something under way, so that it keeps its place.
    pub(crate) fn set_busy(&self) {
        self.occupancy.set_idle(self.id, None);
    }

    /// Waits until the peer must be ended in favour of another one. It does not count any more
    /// then.
    pub(crate) async fn ended(&self) {
        self.end.notify.notified().await;
    }

    /// Lets the connection be ended when nothing has arrived on it for a while and another peer
    /// needs the place.
    pub(crate) fn end_when_idle(&self, connection: TcpStream) {
        *lock(&self.end.connection) = Some(connection);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let state = &mut *lock(&self.occupancy.state);
        state.ends.remove(&self.id);
        if let Some(places) = &mut state.places {
            places.leave(self.id);
        }
    }
}

/// How long ago data arrived on a connection.
fn idle_time(connection: &TcpStream) -> Duration {
    Duration::from_millis(tcp_info(connection).map_or(0, |info| info.tcpi_last_data_recv).into())
}

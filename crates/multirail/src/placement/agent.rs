//! Follows links, and the other hosts' ports, and tells the program of both.

use super::agent_lock::become_agent;
use super::frames::{Frames, Refused};
use super::hook::{self, Hooks};
use super::ports::{self, LinkNow, PortInfo};
use super::program::Tables;
use super::state::{self, PeersFrom, Place, State};
use super::{Error, Result, undo};
use crate::handshake::Token;
use futures_util::StreamExt;
use multirail_proto::placement::exchange::{Counts, Exchange, INTERVAL_US};
use multirail_proto::placement::hello::HelloPort;
use multirail_proto::placement::hosts::HostPort;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use serde::{Deserialize, Serialize};
use std::fs;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::{MissedTickBehavior, interval};

/// What the agent has seen of other hosts' hellos.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExchangeCounts {
    /// By what became of them.
    #[serde(flatten)]
    pub hellos: Counts,
    /// Frames that were none.
    #[serde(flatten)]
    pub refused: Refused,
}

/// Follows links and hosts until `stop`, or until placement ends. One at a time in a network namespace.
///
/// Placement ends with its first port: the kernel has thrown the program away with it, and the agent puts back the rest.
pub async fn run_agent(stop: impl Future<Output = ()>) -> Result<()> {
    let place = Place::here()?;
    let state = State::load(place)?.ok_or(Error::NotUp)?;
    let held = become_agent(&place.agent_file()).map_err(Error::io("becoming the agent"))?;
    let Some(_held) = held else { return Err(Error::AgentRuns) };
    let first = state.ports.first().ok_or(Error::NotUp)?;
    let Hooks::Clsact { ours: Some(id), .. } = hook::look(first.ifindex).await? else { return Err(Error::NotUp) };
    let tables = Tables::open(place, id)?;
    let (connection, mut handle, mut events) =
        rtnetlink::new_multicast_connection(&[MulticastGroup::Link]).map_err(Error::io("opening a netlink socket"))?;
    let mut agent = Agent::new(place, state, tables)?;
    let work = async {
        // Events come from before this question on, so none is missed.
        for link in ports::links(&mut handle).await? {
            agent.handle_link(&link, false);
        }
        agent.write()?;
        let mut tick = interval(Duration::from_micros(INTERVAL_US));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    if agent.first_is_gone || agent.is_over() {
                        return Ok(());
                    }
                    agent.say_hello();
                }
                event = events.next() => match event.map(|(message, _)| message.payload) {
                    Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))) => agent.handle_link(&ports::read_link(link), false),
                    Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))) => agent.handle_link(&ports::read_link(link), true),
                    Some(_) => continue,
                    None => return Err(Error::Io { what: "netlink".into(), reason: io::Error::other("the kernel closed the socket") }),
                },
                arrived = recv(&mut agent.frames) => agent.handle_arrived(&arrived?),
            }
            agent.write()?;
        }
    };
    let outcome = {
        let (work, stop, connection) = (pin!(work), pin!(stop), pin!(connection));
        tokio::select! {
            outcome = work => outcome,
            () = stop => Ok(()),
            () = connection => Err(Error::Io { what: "netlink".into(), reason: io::Error::other("the kernel closed the socket") }),
        }
    };
    agent.say_goodbye();
    if agent.first_is_gone
        && let Some(_lock) = state::try_lock(place)?
    {
        undo(place).await?;
    }
    outcome
}

struct Agent {
    place: Place,
    state: State,
    tables: Tables,
    begun: Instant,
    frames: Option<Frames>,
    exchange: Option<Exchange>,
    /// Whether each port can be used, now and as the program was told.
    usable: Vec<bool>,
    told_usable: Vec<Option<bool>>,
    told_peers: Option<Vec<(Vec<HostPort>, u32)>>,
    told_counts: ExchangeCounts,
    looked_at: Instant,
    first_is_gone: bool,
}

impl Agent {
    fn new(place: Place, state: State, tables: Tables) -> Result<Self> {
        let (mut frames, mut exchange) = (None, None);
        if let PeersFrom::Exchange { token_file } = &state.peers {
            let token = Token::from_file(token_file).map_err(|e| Error::Token(e.to_string()))?;
            frames = Some(Frames::open(&token).map_err(Error::io("opening a socket for hellos"))?);
            let port = |port: &PortInfo| HelloPort {
                mac: port.mac,
                usable: false,
                speed_mbit_s: port.speed_mbit_s().unwrap_or(0),
            };
            let instance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
            exchange = Some(Exchange::new(state.ports.iter().map(port).collect(), instance));
        }
        let (count, now) = (state.ports.len(), Instant::now());
        Ok(Self {
            place,
            state,
            tables,
            begun: now,
            frames,
            exchange,
            usable: vec![false; count],
            told_usable: vec![None; count],
            told_peers: None,
            told_counts: ExchangeCounts::default(),
            looked_at: now,
            first_is_gone: false,
        })
    }

    /// Whether another `up`, or none, counts by now. Looked at once a second; if not, also the moment to write down
    /// what was counted.
    fn is_over(&mut self) -> bool {
        if self.looked_at.elapsed() < Duration::from_secs(1) {
            return false;
        }
        self.looked_at = Instant::now();
        let ours = State::load(self.place).is_ok_and(|state| state.is_some_and(|state| state.id == self.state.id));
        if ours {
            self.write_counts();
        }
        !ours
    }

    fn write_counts(&mut self) {
        let (Some(exchange), Some(frames)) = (&self.exchange, &self.frames) else { return };
        let counts = ExchangeCounts { hellos: exchange.counts(), refused: frames.refused };
        if counts == self.told_counts {
            return;
        }
        self.told_counts = counts;
        let (path, part) = (self.place.counts_file(), self.place.counts_file().with_extension("part"));
        let write = || fs::write(&part, serde_json::to_vec(&counts)?).and_then(|()| fs::rename(&part, &path));
        if let Err(error) = write() {
            tracing::warn!("writing {}: {error}", path.display());
        }
    }

    fn handle_link(&mut self, link: &LinkNow, gone: bool) {
        let Some(number) = self.state.ports.iter().position(|port| port.ifindex == link.ifindex) else { return };
        let usable = !gone && link.is_usable(&self.state.ports[number]);
        self.usable[number] = usable;
        self.first_is_gone |= gone && number == 0;
        if let Some(exchange) = &mut self.exchange {
            exchange.set_port(number, usable);
            // At once, so that the others need not find out by silence.
            self.say_hello();
        }
    }

    fn handle_arrived(&mut self, arrived: &super::frames::Arrived) {
        let at = self.state.ports.iter().position(|port| port.ifindex == arrived.ifindex);
        let now_us = self.now_us();
        if let (Some(at), Some(exchange)) = (at, &mut self.exchange) {
            exchange.handle_hello(at, arrived.source, &arrived.hello, now_us);
        }
    }

    fn say_hello(&mut self) {
        let now_us = self.now_us();
        let (Some(exchange), Some(frames)) = (&mut self.exchange, &self.frames) else { return };
        for (number, port) in self.state.ports.iter().enumerate() {
            frames.send(port.ifindex, &exchange.hello(number, now_us));
        }
    }

    /// The last hello: no port can be used, so the others stop at once.
    fn say_goodbye(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            (0..self.usable.len()).for_each(|number| exchange.set_port(number, false));
        }
        self.say_hello();
    }

    /// Tells the program what has changed.
    fn write(&mut self) -> Result<()> {
        for (number, &usable) in self.usable.iter().enumerate() {
            if self.told_usable[number] != Some(usable) {
                let others = self.tables.usable()? & !(1 << number);
                self.tables.set_usable(others | u32::from(usable) << number)?;
                self.told_usable[number] = Some(usable);
                tracing::info!(
                    "port {}: {}",
                    self.state.ports[number].name,
                    if usable { "usable" } else { "left out" }
                );
            }
        }
        let Some(exchange) = &self.exchange else { return Ok(()) };
        let peers: Vec<(Vec<HostPort>, u32)> =
            exchange.peers(self.now_us()).into_iter().map(|peer| (peer.ports, u32::from(peer.usable))).collect();
        if self.told_peers.as_ref() != Some(&peers) {
            self.tables.set_peers(&peers)?;
            self.told_peers = Some(peers);
        }
        Ok(())
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }
}

/// Waits for ever where there is nothing to receive by.
async fn recv(frames: &mut Option<Frames>) -> Result<super::frames::Arrived> {
    match frames {
        Some(frames) => frames.recv().await.map_err(Error::io("receiving hellos")),
        None => pending().await,
    }
}

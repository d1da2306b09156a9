//! The agent's loop.

use super::counts::ExchangeCounts;
use super::hello_socket::{HelloSocket, ReceivedHello};
use super::lock::become_agent;
use crate::attached::Attached;
use crate::down::undo;
use crate::kernel::ports::{self, LinkState, PortInfo};
use crate::kernel::rights;
use crate::netns::Netns;
use crate::program::Maps;
use crate::saved_state::{PeersFrom, SavedState};
use crate::{Error, Result};
use futures_util::StreamExt;
use multirail_net::Token;
use multirail_proto::placement::exchange::{Exchange, INTERVAL_US};
use multirail_proto::placement::hello::HelloPort;
use multirail_proto::placement::hosts::HostPort;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::{MissedTickBehavior, interval};

/// Interval at which the agent checks the record of placement and writes its counters.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// Follows links and other hosts until `stop` completes or placement ends.
///
/// The kernel removes the program together with the first port. If that port disappears, the agent
/// undoes the other changes.
///
/// The calling thread gives up all capabilities but CAP_BPF and CAP_NET_ADMIN, so other threads should
/// not exist yet.
///
/// # Errors
/// [`Error::NotUp`] if placement is not up, [`Error::AgentRuns`] if the namespace has an agent, and
/// others if the kernel or the token cannot be read.
///
/// # Cancel safety
/// Dropping the future ends the agent without a last hello. Other hosts then notice its end after
/// 0.6 s.
pub async fn run_agent(stop: impl Future<Output = ()>) -> Result<()> {
    let netns = Netns::current()?;
    SavedState::load(netns)?.ok_or(Error::NotUp)?;
    let lock = become_agent(&netns.agent_file()).map_err(Error::io("locking the agent's file"))?;
    let Some(_lock) = lock else { return Err(Error::AgentRuns) };
    let Attached { state, maps, .. } = Attached::find(netns).await?;
    let (connection, mut handle, mut events) =
        rtnetlink::new_multicast_connection(&[MulticastGroup::Link]).map_err(Error::io("opening a netlink socket"))?;
    let mut agent = Agent::new(netns, state, maps)?;
    rights::keep_agents()?;
    let work = async {
        // The subscription precedes this listing, so that no event is missed.
        for link in ports::links(&mut handle).await? {
            agent.handle_link(&link, false);
        }
        agent.update_maps()?;
        let mut tick = interval(Duration::from_micros(INTERVAL_US));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    if agent.first_is_gone || agent.is_over() {
                        return Ok(());
                    }
                    agent.send_hellos();
                }
                event = events.next() => match event.map(|(message, _)| message.payload) {
                    Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))) => agent.handle_link(&ports::read_link(link), false),
                    Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))) => agent.handle_link(&ports::read_link(link), true),
                    Some(_) => continue,
                    None => return Err(netlink_closed()),
                },
                received = receive(&mut agent.socket) => agent.handle_hello(&received?),
            }
            agent.update_maps()?;
        }
    };
    let outcome = {
        let (work, stop, connection) = (pin!(work), pin!(stop), pin!(connection));
        tokio::select! {
            outcome = work => outcome,
            () = stop => Ok(()),
            () = connection => Err(netlink_closed()),
        }
    };
    agent.send_last_hellos();
    if agent.first_is_gone
        && let Some(_lock) = netns.try_lock()?
    {
        undo(netns).await?;
    }
    outcome
}

fn netlink_closed() -> Error {
    Error::io("reading from netlink")(io::Error::other("the kernel closed the socket"))
}

/// Waits forever without a socket.
async fn receive(socket: &mut Option<HelloSocket>) -> Result<ReceivedHello> {
    match socket {
        Some(socket) => socket.receive().await.map_err(Error::io("receiving hellos")),
        None => pending().await,
    }
}

struct Agent {
    netns: Netns,
    state: SavedState,
    maps: Maps,
    started: Instant,
    /// None if the peers are known from a file; so is `exchange`.
    socket: Option<HelloSocket>,
    exchange: Option<Exchange>,
    /// Whether each port can be used.
    usable: Vec<bool>,
    /// The same as last written to the program's map; none before the first write.
    written_usable: Vec<Option<bool>>,
    /// The peers as last written to the program's map.
    written_peers: Option<Vec<(Vec<HostPort>, u32)>>,
    written_counts: ExchangeCounts,
    record_checked: Instant,
    first_is_gone: bool,
}

impl Agent {
    fn new(netns: Netns, state: SavedState, maps: Maps) -> Result<Self> {
        let (mut socket, mut exchange) = (None, None);
        if let PeersFrom::Exchange { token_file } = &state.peers {
            let token = Token::from_file(token_file)?;
            socket = Some(HelloSocket::open(&token).map_err(Error::io("opening a socket for hellos"))?);
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
            netns,
            state,
            maps,
            started: now,
            socket,
            exchange,
            usable: vec![false; count],
            written_usable: vec![None; count],
            written_peers: None,
            written_counts: ExchangeCounts::default(),
            record_checked: now,
            first_is_gone: false,
        })
    }

    /// Whether placement has ended or was started again. Reads the record, and writes the counters,
    /// at most once in [`RECORD_INTERVAL`].
    fn is_over(&mut self) -> bool {
        if self.record_checked.elapsed() < RECORD_INTERVAL {
            return false;
        }
        self.record_checked = Instant::now();
        let recorded = SavedState::load(self.netns).ok().flatten();
        let is_ours = recorded.is_some_and(|recorded| recorded.id == self.state.id);
        if is_ours {
            self.write_counts();
        }
        !is_ours
    }

    fn write_counts(&mut self) {
        let (Some(exchange), Some(socket)) = (&self.exchange, &self.socket) else { return };
        let counts = ExchangeCounts { hellos: exchange.counts(), refused: socket.refused };
        if counts == self.written_counts {
            return;
        }
        self.written_counts = counts;
        if let Err(error) = counts.save(self.netns) {
            tracing::warn!("writing {}: {error}", self.netns.counts_file().display());
        }
    }

    fn handle_link(&mut self, link: &LinkState, is_gone: bool) {
        let Some(number) = self.state.ports.iter().position(|port| port.ifindex == link.ifindex) else { return };
        let usable = !is_gone && link.is_usable(&self.state.ports[number]);
        self.usable[number] = usable;
        self.first_is_gone |= is_gone && number == 0;
        if let Some(exchange) = &mut self.exchange {
            exchange.set_port(number, usable);
            // Other hosts learn of the change at once, before they notice missing hellos.
            self.send_hellos();
        }
    }

    fn handle_hello(&mut self, received: &ReceivedHello) {
        let number = self.state.ports.iter().position(|port| port.ifindex == received.ifindex);
        let now_us = self.now_us();
        if let (Some(number), Some(exchange)) = (number, &mut self.exchange) {
            exchange.handle_hello(number, received.source, &received.hello, now_us);
        }
    }

    fn send_hellos(&mut self) {
        let now_us = self.now_us();
        let (Some(exchange), Some(socket)) = (&mut self.exchange, &self.socket) else { return };
        for (number, port) in self.state.ports.iter().enumerate() {
            socket.send(port.ifindex, &exchange.hello(number, now_us));
        }
    }

    /// Reports that no port can be used, so that other hosts stop using them at once.
    fn send_last_hellos(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            (0..self.usable.len()).for_each(|number| exchange.set_port(number, false));
        }
        self.send_hellos();
    }

    /// Writes to the program's maps what has changed since the last call.
    fn update_maps(&mut self) -> Result<()> {
        for (number, &usable) in self.usable.iter().enumerate() {
            if self.written_usable[number] != Some(usable) {
                let others = self.maps.usable_ports()? & !(1 << number);
                self.maps.set_usable_ports(others | u32::from(usable) << number)?;
                self.written_usable[number] = Some(usable);
                let state = if usable { "usable" } else { "not usable" };
                tracing::info!("port {}: {state}", self.state.ports[number].name);
            }
        }
        let Some(exchange) = &self.exchange else { return Ok(()) };
        let hosts = exchange.peers(self.now_us());
        let peers: Vec<(Vec<HostPort>, u32)> =
            hosts.into_iter().map(|host| (host.ports, u32::from(host.usable))).collect();
        if self.written_peers.as_ref() != Some(&peers) {
            self.maps.set_peers(&peers)?;
            self.written_peers = Some(peers);
        }
        Ok(())
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

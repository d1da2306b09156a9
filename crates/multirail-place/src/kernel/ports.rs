//! The ports of this host: whether they can be used, and their addresses and speeds.

use super::netlink::{failed, with_netlink};
use crate::{Error, Result};
use futures_util::TryStreamExt;
use multirail_net::rails::speed::Speeds;
use multirail_proto::placement::{MAX_PORTS, Mac};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType, LinkMessage};
use serde::{Deserialize, Serialize};

/// A port as it was when placement started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortInfo {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) mac: Mac,
    /// The speed that the peers file states, whatever the hardware reports.
    #[serde(default)]
    pub(crate) stated_mbit_s: Option<u32>,
}

impl PortInfo {
    /// The stated speed, or else the one that the hardware reports; none if it reports none.
    pub(crate) fn speed_mbit_s(&self) -> Option<u32> {
        self.stated_mbit_s.or_else(|| hardware_mbit_s(&self.name))
    }
}

/// The present state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkState {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) mac: Option<Mac>,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
    ethernet: bool,
    enslaved: bool,
}

impl LinkState {
    /// Why packets cannot leave by this port; none if they can.
    pub(crate) fn unusable_reason(&self, port: &PortInfo) -> Option<&'static str> {
        match self {
            _ if !self.up => Some("it is down"),
            _ if !self.carrier => Some("it has no carrier"),
            _ if self.mac != Some(port.mac) => Some("its Ethernet address has been changed since `up`"),
            _ => None,
        }
    }

    pub(crate) fn is_usable(&self, port: &PortInfo) -> bool {
        self.unusable_reason(port).is_none()
    }
}

/// Finds the ports of these names, in this order, and checks that they can be used.
pub(crate) async fn find(names: &[String]) -> Result<Vec<PortInfo>> {
    check_names(names)?;
    let (links, with_address) = with_netlink(async |handle| {
        let addresses = handle.address().get().execute();
        let addresses: Vec<AddressMessage> = addresses.try_collect().await.map_err(failed("listing addresses"))?;
        // Programs do not use link-local addresses: they are the same on every link.
        let counts = |a: &&AddressMessage| a.header.scope != AddressScope::Link;
        let with_address: Vec<u32> = addresses.iter().filter(counts).map(|a| a.header.index).collect();
        Ok((links(handle).await?, with_address))
    })
    .await?;
    let mut ports = Vec::new();
    for name in names {
        let refuse = |what| Err(Error::Port { port: name.clone(), what });
        let Some(link) = links.iter().find(|link| link.name == *name) else {
            return refuse("does not exist; `ip link` lists all ports");
        };
        let Some(mac) = link.mac.filter(|mac| link.ethernet && mac.is_unicast()) else {
            return refuse("it is not an Ethernet port");
        };
        if link.enslaved {
            return refuse("it belongs to another interface (a bond, a bridge, a VRF); remove it from there first");
        }
        if !link.up {
            return refuse("it is down; `ip link set dev PORT up`");
        }
        if ports.is_empty() && !with_address.contains(&link.ifindex) {
            return refuse("the first port must be the one whose addresses programs use, and this one has no address");
        }
        ports.push(PortInfo { name: name.clone(), ifindex: link.ifindex, mac, stated_mbit_s: None });
    }
    if let Some(twice) = ports.iter().enumerate().find(|(i, p)| ports[..*i].iter().any(|o| o.mac == p.mac)) {
        return Err(Error::Port {
            port: twice.1.name.clone(),
            what: "another port has the same Ethernet address; give each port its own",
        });
    }
    Ok(ports)
}

fn check_names(names: &[String]) -> Result<()> {
    if names.len() < 2 || names.len() > MAX_PORTS {
        return Err(Error::Ports(format!("{} given; placement needs 2 to {MAX_PORTS}", names.len())));
    }
    match names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        Some((_, twice)) => Err(Error::Ports(format!("{twice} is named twice"))),
        None => Ok(()),
    }
}

/// Lists all links of the network namespace.
pub(crate) async fn links(handle: &mut rtnetlink::Handle) -> Result<Vec<LinkState>> {
    let links = handle.link().get().set_filter_mask(AddressFamily::Unspec, vec![LinkExtentMask::SkipStats]).execute();
    let links: Vec<LinkMessage> = links.try_collect().await.map_err(failed("listing links"))?;
    Ok(links.into_iter().map(read_link).collect())
}

/// Reads a message about a link.
pub(crate) fn read_link(message: LinkMessage) -> LinkState {
    let flags = message.header.flags;
    let mut link = LinkState {
        name: String::new(),
        ifindex: message.header.index,
        mac: None,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        enslaved: false,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok().map(Mac),
            LinkAttribute::Controller(_) => link.enslaved = true,
            _ => {}
        }
    }
    link
}

/// The time for 1 KiB at each port, by its speed.
pub(crate) fn ns_per_kib(ports: &[PortInfo]) -> Vec<u64> {
    /// The program starts with this speed if none is known, and measures the real one.
    const UNKNOWN_MBIT_S: u32 = 1000;
    ports.iter().map(|port| ns_per_kib_at(port.speed_mbit_s().unwrap_or(UNKNOWN_MBIT_S)).max(1).into()).collect()
}

/// The time for 1 KiB at this speed; 0 if the speed is 0, which means unknown.
pub(crate) fn ns_per_kib_at(speed_mbit_s: u32) -> u32 {
    (1024 * 8 * 1000_u32).checked_div(speed_mbit_s).unwrap_or(0)
}

/// The speed that the hardware reports, in Mbit/s; none if it reports none.
pub(crate) fn hardware_mbit_s(name: &str) -> Option<u32> {
    Some(Speeds::new().mbit_s(name)).filter(|&speed| speed > 0)
}

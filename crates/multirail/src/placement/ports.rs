//! The ports that were named: whether they can be used, and what must be known of them.

use super::netlink::{failed, with_netlink};
use super::{Error, Result};
use crate::rails::ports::speed::Speeds;
use futures_util::TryStreamExt;
use multirail_proto::placement::{MAX_PORTS, Mac};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType, LinkMessage};
use serde::{Deserialize, Serialize};

/// A port as it was when placement began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PortInfo {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) mac: Mac,
    /// As the file of hosts says, whatever the hardware does.
    #[serde(default)]
    pub(super) stated_mbit_s: Option<u32>,
}

impl PortInfo {
    /// As stated, or else as the hardware says; none if it does not.
    pub(super) fn speed_mbit_s(&self) -> Option<u32> {
        self.stated_mbit_s.or_else(|| hardware_mbit_s(&self.name))
    }
}

/// What the kernel says of a port now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkNow {
    pub(super) name: String,
    pub(super) ifindex: u32,
    pub(super) mac: Option<Mac>,
    pub(super) up: bool,
    pub(super) carrier: bool,
    ethernet: bool,
    enslaved: bool,
}

impl LinkNow {
    /// Why packets cannot leave by this port; None if they can.
    pub(super) fn why_not(&self, port: &PortInfo) -> Option<&'static str> {
        match self {
            _ if !self.up => Some("it is switched off"),
            _ if !self.carrier => Some("it has no carrier"),
            _ if self.mac != Some(port.mac) => Some("its Ethernet address has been changed since `up`"),
            _ => None,
        }
    }

    pub(super) fn is_usable(&self, port: &PortInfo) -> bool {
        self.why_not(port).is_none()
    }
}

/// The ports of these names, in this order.
pub(super) async fn find(names: &[String]) -> Result<Vec<PortInfo>> {
    check_names(names)?;
    let (links, with_address) = with_netlink(async |handle| {
        let addresses = handle.address().get().execute();
        let addresses: Vec<AddressMessage> = addresses.try_collect().await.map_err(failed("listing addresses"))?;
        // A link-local one is the same on every link: nobody's programs use it.
        let counts = |a: &&AddressMessage| a.header.scope != AddressScope::Link;
        let with_address: Vec<u32> = addresses.iter().filter(counts).map(|a| a.header.index).collect();
        Ok((links(handle).await?, with_address))
    })
    .await?;
    let mut ports = Vec::new();
    for name in names {
        let refuse = |what| Err(Error::Port { port: name.clone(), what });
        let Some(link) = links.iter().find(|link| link.name == *name) else {
            return refuse("there is none of this name; `ip link` lists them");
        };
        let Some(mac) = link.mac.filter(|mac| link.ethernet && mac.is_unicast()) else {
            return refuse("it is no Ethernet port");
        };
        if link.enslaved {
            return refuse(
                "it is part of another interface (a bond, a bridge, a VRF), which decides over it; take it out first",
            );
        }
        if !link.up {
            return refuse("it is switched off; `ip link set dev PORT up`");
        }
        if ports.is_empty() && !with_address.contains(&link.ifindex) {
            return refuse(
                "it is the first port, which programs send through, and has no address; name the one that has first",
            );
        }
        ports.push(PortInfo { name: name.clone(), ifindex: link.ifindex, mac, stated_mbit_s: None });
    }
    if let Some(twice) = ports.iter().enumerate().find(|(i, p)| ports[..*i].iter().any(|o| o.mac == p.mac)) {
        return Err(Error::Port {
            port: twice.1.name.clone(),
            what: "another port has the same Ethernet address; give it one of its own",
        });
    }
    Ok(ports)
}

fn check_names(names: &[String]) -> Result<()> {
    if names.len() < 2 || names.len() > MAX_PORTS {
        return Err(Error::Ports(format!("{} given; placement needs 2 to {MAX_PORTS}", names.len())));
    }
    match names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        Some((_, twice)) => Err(Error::Ports(format!("{twice} is there twice"))),
        None => Ok(()),
    }
}

/// All links of the network namespace.
pub(super) async fn links(handle: &mut rtnetlink::Handle) -> Result<Vec<LinkNow>> {
    let links = handle.link().get().set_filter_mask(AddressFamily::Unspec, vec![LinkExtentMask::SkipStats]).execute();
    let links: Vec<LinkMessage> = links.try_collect().await.map_err(failed("listing links"))?;
    Ok(links.into_iter().map(read_link).collect())
}

pub(super) fn read_link(message: LinkMessage) -> LinkNow {
    let flags = message.header.flags;
    let mut link = LinkNow {
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

/// How long a KiB takes on each port, by its speed.
pub(super) fn ns_per_kib(ports: &[PortInfo]) -> Vec<u64> {
    /// What the program starts from where nothing is said; it measures.
    const UNKNOWN_MBIT_S: u32 = 1000;
    ports.iter().map(|port| ns_per_kib_at(port.speed_mbit_s().unwrap_or(UNKNOWN_MBIT_S)).max(1).into()).collect()
}

/// How long a KiB takes at this speed; 0 if that is not known.
pub(super) fn ns_per_kib_at(speed_mbit_s: u32) -> u32 {
    (1024 * 8 * 1000_u32).checked_div(speed_mbit_s).unwrap_or(0)
}

/// In Mbit/s; none if the hardware does not say.
pub(super) fn hardware_mbit_s(name: &str) -> Option<u32> {
    Some(Speeds::new().mbit_s(name)).filter(|&speed| speed > 0)
}

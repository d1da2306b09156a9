//! Links and addresses from the kernel.

use super::interface::{Address, Link};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkLayerType, LinkMessage};
use std::io;
use std::net::IpAddr;

/// All links and all addresses of the network namespace.
pub(super) async fn dump() -> io::Result<(Vec<Link>, Vec<Address>)> {
    let (connection, handle, _unsolicited) = rtnetlink::new_connection()?;
    let ask = async {
        let links = handle.link().get().set_filter_mask(AddressFamily::Unspec, vec![LinkExtentMask::SkipStats]);
        let links: Vec<LinkMessage> = links.execute().try_collect().await?;
        let addresses: Vec<AddressMessage> = handle.address().get().execute().try_collect().await?;
        Ok((links, addresses))
    };
    // The connection is driven here. A separate task would outlive a caller that gives up.
    let (links, addresses) = tokio::select! {
        answer = ask => answer.map_err(into_io)?,
        () = connection => return Err(io::Error::other("the kernel closed the netlink socket")),
    };
    Ok((links.into_iter().map(read_link).collect(), addresses.into_iter().filter_map(read_address).collect()))
}

fn into_io(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

fn read_link(message: LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        loopback: flags.contains(LinkFlags::Loopback),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        ..Link::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::LinkInfo(infos) => {
                let kind = |i| if let LinkInfo::Kind(kind) = i { Some(kind.to_string()) } else { None };
                link.kind = infos.into_iter().find_map(kind);
            }
            _ => {}
        }
    }
    link
}

fn read_address(message: AddressMessage) -> Option<Address> {
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut local, mut peer): (Option<IpAddr>, Option<IpAddr>) = (None, None);
    for attribute in message.attributes {
        match attribute {
            // On a point-to-point link, `Address` is the other end's. On other links IPv6 sends
            // only `Address`.
            AddressAttribute::Local(address) => local = Some(address),
            AddressAttribute::Address(address) => peer = Some(address),
            AddressAttribute::Flags(all) => flags = all,
            _ => {}
        }
    }
    Some(Address {
        index: message.header.index,
        address: local.or(peer)?,
        prefix_bits: message.header.prefix_len,
        tentative: flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed),
        deprecated: flags.contains(AddressFlags::Deprecated),
    })
}

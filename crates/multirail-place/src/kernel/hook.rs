//! The `clsact` egress hook of the first port, to which the program is attached as a filter.
//!
//! The filter outlives the process that attached it. It is recognised by its preference and its
//! handle. Filters with a smaller preference run first; the others run after it.

use super::netlink::{failed, with_netlink};
use crate::{Error, Result};
use futures_util::{StreamExt, TryStreamExt};
use rtnetlink::Handle;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The letters "mr".
const PREFERENCE: u16 = 0x6d72;
const HANDLE: TcHandle = TcHandle { major: 0, minor: 0x6d72 };
const NAME: &str = "multirail-place";
const EGRESS: TcHandle = TcHandle { major: 0xffff, minor: TcHandle::MIN_EGRESS };

/// The hooks of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// The port has no queueing discipline with hooks.
    None,
    /// The port has an `ingress` queueing discipline, which has no egress hook.
    Ingress,
    /// The port has a `clsact` queueing discipline.
    Clsact {
        /// The kernel's id of our filter's program, if our filter is there.
        ours: Option<u32>,
        /// Number of other filters that run before ours.
        foreign_before: usize,
        /// Number of all other filters.
        foreign: usize,
    },
}

/// Lists the hooks of a port.
pub(crate) async fn list(ifindex: u32) -> Result<Hooks> {
    with_netlink(async |handle| list_by(handle, ifindex).await).await
}

async fn list_by(handle: &mut Handle, ifindex: u32) -> Result<Hooks> {
    let index = ifindex as i32;
    let qdiscs: Vec<TcMessage> = handle
        .qdisc()
        .get()
        .index(index)
        .execute()
        .try_collect()
        .await
        .map_err(failed("listing queueing disciplines"))?;
    let kinds = qdiscs.iter().filter(|q| q.header.index == index).filter_map(|q| kind(q));
    match kinds.into_iter().find(|kind| ["clsact", "ingress"].contains(kind)) {
        None => return Ok(Hooks::None),
        Some("ingress") => return Ok(Hooks::Ingress),
        Some(_) => {}
    }
    let egress = handle.traffic_filter(index).get().egress().execute();
    let egress: Vec<TcMessage> = egress.try_collect().await.map_err(failed("listing filters"))?;
    let ingress = handle.traffic_filter(index).get().ingress().execute();
    let ingress: Vec<TcMessage> = ingress.try_collect().await.map_err(failed("listing filters"))?;
    let ours = egress.iter().find(|filter| is_ours(filter)).map(|filter| program_id(filter).unwrap_or(0));
    // The kernel lists each preference once more, without a handle.
    let theirs = |filter: &&TcMessage| !is_ours(filter) && u32::from(filter.header.handle) != 0;
    let before = |filter: &&TcMessage| preference(filter) < PREFERENCE;
    Ok(Hooks::Clsact {
        ours,
        foreign_before: egress.iter().filter(theirs).filter(before).count(),
        foreign: egress.iter().filter(theirs).count() + ingress.iter().filter(theirs).count(),
    })
}

/// Adds the hook.
pub(crate) async fn add_clsact(ifindex: u32) -> Result<()> {
    let header = TcHeader {
        index: ifindex as i32,
        handle: TcHandle { major: 0xffff, minor: 0 },
        parent: TcHandle::CLSACT,
        ..TcHeader::default()
    };
    let message = TcMessage::from_parts(header, vec![TcAttribute::Kind("clsact".into())]);
    let create = NLM_F_CREATE | NLM_F_EXCL;
    with_netlink(async |handle| {
        request(handle, RouteNetlinkMessage::NewQueueDiscipline(message), create)
            .await
            .map_err(Error::io("adding a clsact hook"))
    })
    .await
}

/// Attaches the program.
pub(crate) async fn attach(ifindex: u32, program: BorrowedFd<'_>) -> Result<()> {
    let options = vec![
        TcOption::Bpf(TcFilterBpfOption::ProgFd(program.as_raw_fd() as u32)),
        TcOption::Bpf(TcFilterBpfOption::ProgName(NAME.into())),
        TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
    ];
    let message =
        TcMessage::from_parts(header(ifindex), vec![TcAttribute::Kind("bpf".into()), TcAttribute::Options(options)]);
    let create = NLM_F_CREATE | NLM_F_EXCL;
    with_netlink(async |handle| {
        request(handle, RouteNetlinkMessage::NewTrafficFilter(message), create)
            .await
            .map_err(Error::io("attaching the program"))
    })
    .await
}

/// Removes our filter if it is there. Removes the hook, too, if `added` is set and no other filter
/// uses it.
pub(crate) async fn remove(ifindex: u32, added: bool) -> Result<()> {
    with_netlink(async |handle| {
        if let Hooks::Clsact { ours: Some(_), .. } = list_by(handle, ifindex).await? {
            let message = TcMessage::from_parts(header(ifindex), vec![TcAttribute::Kind("bpf".into())]);
            let deleted = request(handle, RouteNetlinkMessage::DelTrafficFilter(message), 0).await;
            deleted.map_err(Error::io("detaching the program"))?;
        }
        if added && matches!(list_by(handle, ifindex).await?, Hooks::Clsact { foreign: 0, .. }) {
            let header = TcHeader { index: ifindex as i32, parent: TcHandle::CLSACT, ..TcHeader::default() };
            let message = TcMessage::from_parts(header, vec![TcAttribute::Kind("clsact".into())]);
            let deleted = request(handle, RouteNetlinkMessage::DelQueueDiscipline(message), 0).await;
            deleted.map_err(Error::io("removing the clsact hook"))?;
        }
        Ok(())
    })
    .await
}

fn header(ifindex: u32) -> TcHeader {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let info = u32::from(PREFERENCE) << 16 | u32::from(protocol);
    TcHeader { index: ifindex as i32, handle: HANDLE, parent: EGRESS, info, ..TcHeader::default() }
}

async fn request(handle: &mut Handle, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut answers = handle.request(message).map_err(io::Error::other)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(error.to_io());
        }
    }
    Ok(())
}

fn is_ours(filter: &TcMessage) -> bool {
    filter.header.handle == HANDLE && preference(filter) == PREFERENCE && kind(filter) == Some("bpf")
}

fn preference(filter: &TcMessage) -> u16 {
    (filter.header.info >> 16) as u16
}

fn kind(message: &TcMessage) -> Option<&str> {
    message.attributes.iter().find_map(|a| if let TcAttribute::Kind(kind) = a { Some(kind.as_str()) } else { None })
}

fn program_id(filter: &TcMessage) -> Option<u32> {
    let options =
        filter.attributes.iter().find_map(|a| if let TcAttribute::Options(o) = a { Some(o) } else { None })?;
    options.iter().find_map(|o| if let TcOption::Bpf(TcFilterBpfOption::ProgId(id)) = o { Some(*id) } else { None })
}

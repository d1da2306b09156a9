//! Servers that the command of a pipeline starts over ssh.

use super::args::{Described, GroupArgs};
use crate::ssh::{Purpose, Servers};
use crate::usage::Usage;
use anyhow::{anyhow, bail};
use multirail::multicast::hosts::{Entry, EntryPosition, parse_address};
use multirail::runtime;
use std::collections::BTreeSet;

/// Runs `work` with the servers that the command line asks for, and ends them afterwards, also
/// after an error.
pub fn with_servers<T>(
    args: &GroupArgs,
    mut described: Described,
    interrupted: impl Future<Output = ()>,
    work: impl FnOnce(Described) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let servers = runtime::block_on(async {
        Ok(tokio::select! {
            started = start(args, &mut described) => started,
            () = interrupted => Err(anyhow!("interrupted")),
        })
    })??;
    let done = work(described);
    if let Some(servers) = servers {
        end(servers)?;
    }
    done
}

/// Starts a server on each host that has a filter, and stores its address in the description.
async fn start(args: &GroupArgs, described: &mut Described) -> anyhow::Result<Option<Servers>> {
    if !args.ssh.is_given() {
        return Ok(None);
    }
    let (graph, names) = described.description.graph()?;
    let used: BTreeSet<u32> = graph.filters().iter().flat_map(|f| f.hosts.iter().copied()).collect();
    let (mut away, mut entries) = (Vec::new(), Vec::new());
    for (number, name) in names.into_iter().enumerate().skip(1).filter(|(n, _)| used.contains(&(*n as u32))) {
        let address = described.description.hosts.get(&name).map_or("", String::as_str);
        let (address, port) = parse_address(address).map_err(|why| Usage::of(format!("host {name}: {why}")))?;
        entries.push(Entry { port, ..Entry::named(&address, EntryPosition::Item(number)) });
        away.push(name);
    }
    // Programs are allowed: only this command knows the token, and a user of ssh can run programs
    // anyway.
    let purpose = Purpose { root: &args.ssh_root, allow_programs: true };
    let Some(servers) = args.ssh.start(&entries, purpose).await? else { return Ok(None) };
    for (name, address) in away.into_iter().zip(&servers.addresses) {
        match address {
            Ok(address) => drop(described.description.hosts.insert(name, address.clone())),
            Err(why) => {
                let failed = format!("host {name}: {why}");
                servers.end().await;
                bail!(failed);
            }
        }
    }
    described.config.token = Some(servers.token.clone());
    Ok(Some(servers))
}

fn end(servers: Servers) -> anyhow::Result<()> {
    Ok(runtime::block_on(async {
        servers.end().await;
        Ok(())
    })?)
}

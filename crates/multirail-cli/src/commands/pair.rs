//! `multirail pair`.

use super::{listen_address, with_port};
use crate::hints::error_with_hint;
use crate::keys::KeysArgs;
use crate::printer::Printer;
use anyhow::{Context, ensure};
use bip39::Language;
use multirail::pairing::{self, Offer, PAIRING_PORT};
use multirail::session::ListenConfig;
use multirail::{Permissions, PublicKey};
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Words of a code. Each is one of 2^11, so a guess is right with a probability of 2^-33.
const WORDS: usize = 3;

/// Learn the key of another host, and give it this one's: run it without HOST on the server, and with
/// HOST on the client
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail pair              on the server; it prints a code\n  \
    multirail pair storage1     on the client; it asks for the code")]
pub struct PairArgs {
    /// The host that shows the code: HOST or HOST:PORT [default port: 7718]
    host: Option<String>,
    /// The code; without it, the command asks for it. Other users of this host can see arguments
    code: Option<String>,
    /// The address to listen on [default: all addresses, port 7718]
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "host")]
    listen: Option<String>,
    /// What the client may do, as in `authorized_keys`: for example `ro,root=results` [default: everything]
    #[arg(long, value_name = "OPTIONS", conflicts_with = "host")]
    options: Option<String>,
    /// How long to wait for the client
    #[arg(long, value_name = "S", default_value_t = 300, conflicts_with = "host",
        value_parser = clap::value_parser!(u32).range(1..=86400))]
    wait: u32,
    #[command(flatten)]
    keys: KeysArgs,
}

#[derive(Serialize)]
struct Code {
    code: String,
    listening: SocketAddr,
}

#[derive(Serialize)]
struct Paired {
    peer: String,
    key: String,
}

pub fn run(args: PairArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        match &args.host {
            Some(host) => join(host, &args, printer).await,
            None => offer(&args, printer).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn offer(args: &PairArgs, printer: &Printer) -> anyhow::Result<()> {
    if let Some(options) = &args.options {
        options.parse::<Permissions>().map_err(|why| anyhow::anyhow!("--options: {why}"))?;
    }
    let config = args.keys.config(None)?;
    let file = args.keys.directory()?.join("authorized_keys");
    let address = match &args.listen {
        Some(text) => listen_address(text, PAIRING_PORT)?,
        None => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, PAIRING_PORT)),
    };
    let code = new_code()?;
    let known = config.authorized_keys.clone();
    let offer = Offer::bind(ListenConfig::new(address, config), &code).await?;
    let shown = Code { code, listening: offer.address() };
    printer.row(&shown, |shown| {
        let port = match shown.listening.port() {
            PAIRING_PORT => String::new(),
            other => format!(":{other}"),
        };
        format!("run `multirail pair HOST{port}` on the client, with the name of this host, and type: {}", shown.code)
    });
    let mut paired = None;
    let keep = |key: PublicKey, name: &str| {
        if known.contains(key) {
            return Err(format!("the server has a line for the key {key} already; edit {}", file.display()));
        }
        let words = [args.options.as_deref().unwrap_or_default(), &key.to_string(), name];
        let line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        known.add_line(&line).map_err(|error| error.to_string())?;
        paired = Some(key);
        Ok(())
    };
    let wait = Duration::from_secs(args.wait.into());
    let done = tokio::time::timeout(wait, offer.paired(keep)).await;
    let peer = done.map_err(|_| anyhow::anyhow!("no client came within {} s; nothing was kept", args.wait))??;
    let key = paired.map(|key| key.to_string()).unwrap_or_default();
    printer.row(&Paired { peer: peer.ip().to_canonical().to_string(), key }, |row| {
        format!("paired with {}: its key is in {}, and a server that runs finds it there", row.peer, file.display())
    });
    Ok(())
}

async fn join(host: &str, args: &PairArgs, printer: &Printer) -> anyhow::Result<()> {
    let config = args.keys.config(None)?;
    let address = with_port(host, PAIRING_PORT);
    // The key is that of the user there, whatever the port of its server is.
    let name = address.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']).to_owned();
    let code = match &args.code {
        Some(code) => code.clone(),
        None => ask()?,
    };
    ensure!(!code.trim().is_empty(), "the code is empty");
    let key = pairing::pair(&address, &code, &own_name(), &config).await?;
    if config.known_hosts.check(&address, key).is_err() {
        config.known_hosts.add_line(&format!("{name} {key}")).map_err(|error| {
            let hint = format!("add the line `{name} {key}` to the known hosts");
            error_with_hint(format!("the server has kept this host's key, and here: {error}"), hint)
        })?;
    }
    printer
        .row(&Paired { peer: name, key: key.to_string() }, |row| format!("paired with {}: its key is known", row.peer));
    Ok(())
}

/// The code from the terminal, or from the first line of stdin.
fn ask() -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        eprint!("code: ");
        let _ = std::io::stderr().flush();
    }
    let mut code = String::new();
    std::io::stdin().lock().read_line(&mut code).context("cannot read the code from stdin")?;
    Ok(code)
}

/// What the server writes beside this side's key.
fn own_name() -> String {
    let user = std::env::var("USER").unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{user}@{}", host.trim())
}

fn new_code() -> anyhow::Result<String> {
    let mut random = [0; 2 * WORDS];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    let list = Language::English.word_list();
    // The length of the list divides 2^16, so each word is as likely as any other.
    let words = random.chunks(2).map(|two| list[usize::from(u16::from_le_bytes([two[0], two[1]])) % list.len()]);
    Ok(words.collect::<Vec<_>>().join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_33_bits() {
        assert_eq!(Language::English.word_list().len(), 1 << 11);
        let (one, other) = (new_code().unwrap(), new_code().unwrap());
        assert_eq!(one.split('-').count(), WORDS);
        assert_ne!(one, other);
    }
}

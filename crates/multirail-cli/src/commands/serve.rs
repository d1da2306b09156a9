//! `multirail serve`.

use crate::printer::Printer;
use anyhow::Context;
use multirail::session::ListenConfig;
use multirail::{Config, Token, service};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Answer other hosts: their files, their benchmarks
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  head -c 32 /dev/urandom | base64 > token\n  multirail serve --root /data --token-file token"
)]
pub struct ServeArgs {
    /// Where to listen [default: all addresses with a token, 127.0.0.1 without; port 7717]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// The folder that clients may read and write; nothing outside it
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// File with the token that clients must know too
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve anyone who can reach the address, without a token
    #[arg(long)]
    insecure_no_token: bool,
}

#[derive(Serialize)]
struct Ready {
    listening: SocketAddr,
    root: PathBuf,
    token: bool,
}

pub fn run(args: ServeArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let token = args.token_file.as_deref().map(Token::from_file).transpose()?;
    let root = args.root.canonicalize().with_context(|| format!("--root {}", args.root.display()))?;
    anyhow::ensure!(root.is_dir(), "--root {} is not a folder", root.display());
    let open = token.is_some() || args.insecure_no_token;
    let address = match &args.listen {
        Some(text) => super::listen_address(text)?,
        None if open => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, service::DEFAULT_PORT)),
        None => SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, service::DEFAULT_PORT)),
    };
    let with_token = token.is_some();
    let listen = ListenConfig {
        address,
        insecure_no_token: args.insecure_no_token,
        session: Config { token, ..Config::default() },
    };
    let config = service::ServeConfig { listen, root: root.clone() };
    super::raise_file_limit();
    service::block_on(service::serve(config, |listening| {
        printer.row(&Ready { listening, root, token: with_token }, |r| {
            let whom = if r.token { "clients with the token" } else { "anyone" };
            format!("serving {} to {whom} on {}", r.root.display(), r.listening)
        });
    }))?;
    Ok(ExitCode::SUCCESS)
}

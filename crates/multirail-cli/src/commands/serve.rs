//! `multirail serve`.

use crate::printer::Printer;
use anyhow::Context;
use multirail::pipeline::Filters;
use multirail::session::ListenConfig;
use multirail::{Config, Token, service};
use serde::Serialize;
use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::sync::oneshot;

/// No token on stdin is longer, or shorter.
const STDIN_TOKEN_BYTES: std::ops::RangeInclusive<usize> = 8..=4096;

/// Answer other hosts: their files, their pipelines, their benchmarks
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
    /// File with the token that clients must know too; `-`: the first line of stdin, and the server ends when stdin does
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve anyone who can reach the address, without a token
    #[arg(long)]
    insecure_no_token: bool,
    /// Run programs as filters of pipelines: whoever knows the token can then run anything here, as the user that the server runs as
    #[arg(long, requires = "token_file", conflicts_with = "insecure_no_token")]
    allow_programs: bool,
}

#[derive(Serialize)]
struct Ready {
    listening: SocketAddr,
    root: PathBuf,
    token: bool,
}

pub fn run(args: ServeArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let on_stdin = args.token_file.as_deref() == Some(Path::new("-"));
    let token = match &args.token_file {
        Some(_) if on_stdin => Some(token_of_stdin()?),
        file => file.as_deref().map(Token::from_file).transpose()?,
    };
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
    let stdin_ended = if on_stdin { Some(end_of_stdin()?) } else { None };
    let mut filters = Filters::built_in(&root);
    if args.allow_programs {
        filters = filters.with_programs(&root);
    }
    service::block_on(async {
        let serve = service::serve_filters(config, filters, |listening| {
            printer.row(&Ready { listening, root, token: with_token }, |r| {
                let whom = if r.token { "clients with the token" } else { "anyone" };
                format!("serving {} to {whom} on {}", r.root.display(), r.listening)
            });
        });
        match stdin_ended {
            None => serve.await,
            Some(ended) => tokio::select! {
                served = serve => served,
                _ = ended => Ok(()),
            },
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Never on a command line: everyone on the host could read it there.
fn token_of_stdin() -> anyhow::Result<Token> {
    let mut line = Vec::new();
    let longest = *STDIN_TOKEN_BYTES.end() as u64 + 1;
    std::io::stdin().lock().take(longest).read_until(b'\n', &mut line).context("reading the token from stdin")?;
    let secret = line.trim_ascii();
    anyhow::ensure!(
        STDIN_TOKEN_BYTES.contains(&secret.len()),
        "the token on stdin has {} bytes, it must have {} to {}",
        secret.len(),
        STDIN_TOKEN_BYTES.start(),
        STDIN_TOKEN_BYTES.end()
    );
    Ok(Token::new(secret))
}

/// Whoever started the server holds its stdin open for as long as it is wanted: a session over ssh that ends closes it.
fn end_of_stdin() -> anyhow::Result<oneshot::Receiver<()>> {
    let (ended, told) = oneshot::channel();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(ended);
    })?;
    Ok(told)
}

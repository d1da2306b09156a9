//! `multirail connect`.

use super::{SessionArgs, host_address};
use crate::printer::Printer;
use anyhow::Context;
use multirail::forward::Forwarder;
use multirail::streams::SessionStream;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::io::AsyncWriteExt;

/// Connect stdin and stdout to a port of a host, over all rails
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    ssh -o ProxyCommand='multirail connect %h %p' storage1\n  \
    rsync -a -e \"ssh -o ProxyCommand='multirail connect %h %p'\" results storage1:/data/\n\n\
    The host runs `multirail serve --allow-forward`.")]
pub struct ConnectArgs {
    /// The host to connect to, by its name or address
    #[arg(value_name = "HOST")]
    host: String,
    /// The TCP port
    #[arg(value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The server that connects [default: the one on HOST]
    #[arg(long, value_name = "SERVER[:PORT]")]
    via: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

pub fn run(args: ConnectArgs, _: &Printer) -> anyhow::Result<ExitCode> {
    let config = args.session.config()?;
    let server = host_address(args.via.as_ref().unwrap_or(&args.host))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    let connected = runtime.block_on(async {
        let target = resolve(&args.host, args.port).await?;
        let forwarder = Forwarder::connect(&server, config).await?;
        let mut stream = forwarder.open(target).await?;
        join_standard_streams(&mut stream).await.context("the connection")?;
        drop(stream);
        forwarder.close().await?;
        anyhow::Ok(())
    });
    // A read of stdin may still be under way.
    runtime.shutdown_background();
    connected.map(|()| ExitCode::SUCCESS)
}

/// Copies between stdin, stdout and the stream until both directions have ended.
async fn join_standard_streams(stream: &mut SessionStream) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let sent = async {
        tokio::io::copy(&mut tokio::io::stdin(), &mut to).await?;
        to.shutdown().await
    };
    let received = async {
        let mut stdout = tokio::io::stdout();
        tokio::io::copy(&mut from, &mut stdout).await?;
        stdout.flush().await?;
        close_stdout()
    };
    tokio::try_join!(sent, received).map(|_| ())
}

/// Tells the reader of stdout that the target has ended its direction. Stdin may go on.
fn close_stdout() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(null).map_err(io::Error::from)
}

/// The address of a target. The server is told an address, not a name.
pub async fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let addresses = tokio::net::lookup_host((bare, port)).await.with_context(|| format!("the name {host}"))?;
    addresses.into_iter().next().with_context(|| format!("{host} has no address"))
}

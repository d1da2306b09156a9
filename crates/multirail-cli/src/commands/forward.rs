//! `multirail forward`.

use super::connect::resolve;
use super::{SessionArgs, host_address};
use crate::interrupt;
use crate::printer::Printer;
use crate::usage::Usage;
use anyhow::Context;
use multirail::forward::{ForwardError, Forwarder, relay};
use multirail::{Config, runtime};
use serde::Serialize;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// Forward a local port to a port of another host, over all rails
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    multirail forward 5433 storage1:5432\n  \
    multirail forward 5433 localhost:5432 --via storage1\n\n\
    The server runs with --allow-forward. Names are resolved on this host; `localhost` is the server's own.")]
pub struct ForwardArgs {
    /// The local port to listen on, on loopback unless an address is given
    #[arg(value_name = "[ADDR:]PORT", value_parser = listen_address)]
    listen: SocketAddr,
    /// The host and the port to forward to
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// The server that connects to the target [default: the one on HOST]
    #[arg(long, value_name = "SERVER[:PORT]")]
    via: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct Ready {
    listening: SocketAddr,
    target: SocketAddr,
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| "write PORT or ADDRESS:PORT, for example 5433 or [::1]:5433".to_owned())
}

/// The session to the server, opened again when it is over.
struct Server {
    host: String,
    config: Config,
    session: Mutex<Option<Arc<Forwarder>>>,
}

impl Server {
    async fn session(&self) -> Result<Arc<Forwarder>, ForwardError> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|session| !session.is_over()) {
            return Ok(open.clone());
        }
        let opened = Arc::new(Forwarder::connect(&self.host, self.config.clone()).await?);
        *session = Some(opened.clone());
        Ok(opened)
    }
}

pub fn run(args: ForwardArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let (host, port) = split_target(&args.target).map_err(Usage::of)?;
    let server = host_address(args.via.as_deref().unwrap_or(host))?;
    let server = Server { host: server, config: args.session.config()?, session: Mutex::default() };
    super::raise_file_limit();
    let interrupted = interrupt::listen()?;
    runtime::block_on(async { Ok(forward(&args, server, resolve(host, port).await, printer, &interrupted).await) })??;
    Ok(ExitCode::SUCCESS)
}

async fn forward(
    args: &ForwardArgs,
    server: Server,
    target: anyhow::Result<SocketAddr>,
    printer: &Printer,
    interrupted: &tokio::sync::Notify,
) -> anyhow::Result<()> {
    let target = target?;
    // A server that cannot be reached, or does not forward, is an error now and not later.
    server.session().await?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    let ready = Ready { listening: listener.local_addr()?, target };
    printer.row(&ready, |r| format!("forwarding {} to {} by the server at {}", r.listening, r.target, server.host));
    let (server, printer) = (Arc::new(server), *printer);
    loop {
        let connection = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((connection, _)) => connection,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            () = interrupted.notified() => return Ok(()),
        };
        let server = server.clone();
        tokio::spawn(async move {
            if let Err(error) = forward_one(&server, target, connection).await {
                printer.note(format!("warning: a connection was not forwarded: {error}"));
            }
        });
    }
}

async fn forward_one(server: &Server, target: SocketAddr, connection: TcpStream) -> Result<(), ForwardError> {
    let opened = match server.session().await {
        Ok(session) => session.open(target).await,
        Err(error) => Err(error),
    };
    let stream = opened.inspect_err(|_| {
        // The program learns that the connection has failed, and not that it has ended.
        let _ = connection.set_zero_linger();
    })?;
    let _ = connection.set_nodelay(true);
    if let Err(error) = relay(connection, stream).await {
        tracing::debug!(%error, "a forwarded connection");
    }
    Ok(())
}

fn split_target(text: &str) -> anyhow::Result<(&str, u16)> {
    let parsed =
        text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port > 0)?)));
    parsed.filter(|(host, _)| !host.is_empty()).with_context(|| format!("{text}: write HOST:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_host_and_a_port() {
        assert_eq!(split_target("db:5432").unwrap(), ("db", 5432));
        assert_eq!(split_target("[::1]:5432").unwrap(), ("[::1]", 5432));
        for wrong in ["db", "db:", "db:0", ":5432", "db:65536"] {
            assert!(split_target(wrong).is_err(), "{wrong}");
        }
    }
}

//! `multirail forward`.

use super::connect::resolve;
use super::{SessionArgs, host_address};
use crate::interrupt;
use crate::printer::Printer;
use crate::usage::Usage;
use anyhow::Context;
use multirail::forward::socks::{self, Route};
use multirail::forward::{ForwardError, Peers, Via, relay};
use multirail::runtime;
use serde::Serialize;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Forward a local port to a port of another host, or to any by SOCKS, over all rails
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    multirail forward 5433 storage1:5432\n  \
    multirail forward 5433 localhost:5432 --via storage1\n  \
    multirail forward --socks 1080\n\n\
    The server runs with --allow-forward. Names are resolved on this host; `localhost` is the server's own.")]
pub struct ForwardArgs {
    /// The local port to listen on, on loopback unless an address is given
    #[arg(value_name = "[ADDR:]PORT", value_parser = listen_address)]
    listen: SocketAddr,
    /// The host and the port to forward to
    #[arg(value_name = "HOST:PORT", required_unless_present = "socks")]
    target: Option<String>,
    /// Serve SOCKS5: each client names its target
    #[arg(long, conflicts_with = "target")]
    socks: bool,
    /// The server that connects to targets [default: the one on the target's host]
    #[arg(long, value_name = "SERVER[:PORT]")]
    via: Option<String>,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct Ready {
    listening: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<SocketAddr>,
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| "write PORT or ADDRESS:PORT, for example 5433 or [::1]:5433".to_owned())
}

/// Where accepted connections go.
enum Destination {
    One { target: SocketAddr, server: Via },
    AsAsked(Route),
}

pub fn run(args: ForwardArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let target = args.target.as_deref().map(split_target).transpose().map_err(Usage::of)?;
    let config = args.session.config()?;
    let server = args.via.as_deref().or(target.map(|(host, _)| host)).map(host_address).transpose()?;
    let server = server.map(|host| Via::new(host, config.clone()));
    super::raise_file_limit();
    let interrupted = interrupt::listen()?;
    runtime::block_on(async {
        let destination = match (target, server) {
            (Some((host, port)), Some(server)) => {
                resolve(host, port).await.map(|target| Destination::One { target, server })
            }
            (_, Some(server)) => Ok(Destination::AsAsked(Route::Via(server))),
            (_, None) => Ok(Destination::AsAsked(Route::Peers(Peers::probing(config)))),
        };
        Ok(forward(args.listen, destination, printer, &interrupted).await)
    })??;
    Ok(ExitCode::SUCCESS)
}

async fn forward(
    listen: SocketAddr,
    destination: anyhow::Result<Destination>,
    printer: &Printer,
    interrupted: &tokio::sync::Notify,
) -> anyhow::Result<()> {
    let destination = destination?;
    // A server that cannot be reached, or does not forward, is an error now and not later.
    if let Destination::One { server, .. } | Destination::AsAsked(Route::Via(server)) = &destination {
        server.session().await?;
    }
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let listening = listener.local_addr()?;
    match &destination {
        Destination::One { target, server } => printer.row(&Ready { listening, target: Some(*target) }, |_| {
            format!("forwarding {listening} to {target} by the server at {}", server.host())
        }),
        Destination::AsAsked(_) => {
            printer.row(&Ready { listening, target: None }, |_| format!("serving SOCKS5 on {listening}"));
        }
    }
    let (destination, printer) = (Arc::new(destination), *printer);
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
        let destination = destination.clone();
        tokio::spawn(async move {
            let forwarded = match &*destination {
                Destination::One { target, server } => {
                    forward_one(server, *target, connection).await.map_err(|error| error.to_string())
                }
                Destination::AsAsked(route) => socks::serve(connection, route).await.map_err(|error| error.to_string()),
            };
            if let Err(error) = forwarded {
                printer.note(format!("warning: a connection was not forwarded: {error}"));
            }
        });
    }
}

async fn forward_one(server: &Via, target: SocketAddr, connection: TcpStream) -> Result<(), ForwardError> {
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

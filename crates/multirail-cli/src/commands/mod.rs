//! One file a command. Each has its clap arguments and a `run` that gets the printer and returns the exit code.

pub mod bcast;
pub mod bench;
pub mod cp;
pub mod doctor;
pub mod lab;
pub mod pipeline;
pub mod place;
pub mod rails;
pub mod serve;

use anyhow::Context;
use multirail::{Config, Strategy, Token, service};
use multirail_proto::topology::RailFilter;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What every command that opens a session takes.
#[derive(clap::Args)]
pub struct SessionArgs {
    /// Which rails may be used: interface names, addresses or networks, `!` before what to leave out
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub rails: RailFilter,
    /// How messages are given to channels: single, equal-partition, shared-counter, two-ended or adaptive
    #[arg(long, value_name = "NAME", default_value = "adaptive")]
    pub strategy: Strategy,
    /// Connections a rail: a number, or `auto` to find it while transferring
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = channels)]
    pub channels: u32,
    /// The fragment of shared-counter and two-ended, in bytes
    #[arg(long, value_name = "BYTES", default_value = "2k", value_parser = fragment)]
    pub fragment_bytes: u32,
    /// File with the token that the server was started with
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl SessionArgs {
    /// As the library takes it.
    pub fn config(&self) -> multirail::Result<Config> {
        Ok(Config {
            token: self.token_file.as_deref().map(Token::from_file).transpose()?,
            strategy: self.strategy,
            channels_per_rail: self.channels,
            fragment_bytes: self.fragment_bytes,
            rails: self.rails.clone(),
            ..Config::default()
        })
    }
}

/// `auto` is 0 to the library.
fn channels(text: &str) -> Result<u32, String> {
    match text {
        "auto" => Ok(0),
        number => match number.parse() {
            Ok(n @ 1..=64) => Ok(n),
            _ => Err("a number from 1 to 64, or auto".to_owned()),
        },
    }
}

fn fragment(text: &str) -> Result<u32, String> {
    match multirail_proto::units::parse_size(text) {
        Ok(bytes @ 1..=0x4000_0000) => Ok(bytes as u32),
        Ok(_) => Err("a fragment has 1 byte to 1 GiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// `host`, `host:port`, `[v6]:port` or a bare IPv6 address, with the default port where none is given.
pub fn host_address(text: &str) -> multirail::Result<String> {
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    Ok(match text {
        _ if bare_v6 => format!("[{text}]:{}", service::DEFAULT_PORT),
        _ if text.ends_with(']') || !text.contains(':') => format!("{text}:{}", service::DEFAULT_PORT),
        _ => text.to_owned(),
    })
}

/// An address to listen on, with or without port.
fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(SocketAddr::new(address, service::DEFAULT_PORT));
    }
    text.parse()
        .with_context(|| format!("--listen {text}: not ADDRESS:PORT; write for example 0.0.0.0:7717 or [::]:7717"))
}

/// Lets this process have as many connections as the system allows it.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a valid rlimit. Failure leaves the limit as it was, which is fine.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

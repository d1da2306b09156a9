//! The commands, each in a module with its arguments and a function `run` that returns the exit
//! code.

pub mod bcast;
pub mod bench;
pub mod connect;
pub mod copy_server;
pub mod cp;
pub mod doctor;
pub mod fetch;
pub mod forward;
pub mod id;
pub mod lab;
pub mod pair;
pub mod pipeline;
pub mod place;
pub mod rails;
pub mod run;
pub mod serve;
pub mod token;

use crate::keys::KeysArgs;
use anyhow::Context;
use multirail::{Channels, Config, Strategy, Token, server};
use multirail_proto::topology::RailFilter;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;

/// The options of every command that opens a session.
#[derive(clap::Args)]
pub struct SessionArgs {
    /// The rails to use: interface names, addresses or networks; `!` excludes one
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub rails: RailFilter,
    /// How a message is split over channels: single, equal-partition, shared-counter, two-ended or
    /// adaptive
    #[arg(long, value_name = "NAME", default_value = "adaptive")]
    pub strategy: Strategy,
    /// Connections per rail: a number, or `auto` to measure the best number during the transfer
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = channels)]
    pub channels: Channels,
    /// The fragment size of shared-counter and two-ended
    #[arg(long, value_name = "BYTES", default_value = "2k", value_parser = fragment)]
    pub fragment_bytes: u32,
    /// A file with the token of the server
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Send and receive data unencrypted: everyone on the path can read and change it. Both sides must
    /// say so
    #[arg(long)]
    pub plaintext: bool,
    #[command(flatten)]
    pub keys: KeysArgs,
}

impl SessionArgs {
    /// The configuration for the library.
    pub fn config(&self) -> anyhow::Result<Config> {
        let token = self.token_file.as_deref().map(Token::from_file).transpose()?;
        Ok(self.applied_to(self.keys.config(token)?))
    }

    /// The configuration with these options and the keys of `config`.
    pub fn applied_to(&self, config: Config) -> Config {
        config
            .plaintext(self.plaintext)
            .strategy(self.strategy)
            .channels(self.channels)
            .fragment_bytes(self.fragment_bytes)
            .rails(self.rails.clone())
    }
}

fn channels(text: &str) -> Result<Channels, String> {
    match text {
        "auto" => Ok(Channels::Auto),
        number => match number.parse::<NonZero<u32>>() {
            Ok(count) if count.get() <= 64 => Ok(Channels::Fixed(count)),
            _ => Err("write a number from 1 to 64, or auto".to_owned()),
        },
    }
}

fn fragment(text: &str) -> Result<u32, String> {
    match multirail_proto::units::parse_size(text) {
        Ok(bytes @ 1..=0x4000_0000) => Ok(bytes as u32),
        Ok(_) => Err("a fragment has at least 1 byte and at most 1 GiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Adds the default port to a host without one: `host`, `host:port`, `[v6]:port` or an IPv6
/// address.
pub fn host_address(text: &str) -> multirail::Result<String> {
    Ok(with_port(text, server::DEFAULT_PORT))
}

fn with_port(text: &str, port: u16) -> String {
    let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    match text {
        _ if bare_v6 => format!("[{text}]:{port}"),
        _ if text.ends_with(']') || !text.contains(':') => format!("{text}:{port}"),
        _ => text.to_owned(),
    }
}

/// Parses an address to listen on. The port is optional.
fn listen_address(text: &str, port: u16) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    text.parse()
        .with_context(|| format!("--listen {text}: write ADDRESS:PORT, for example 0.0.0.0:{port} or [::]:{port}"))
}

/// Raises the limit of open files to the maximum, because each connection needs one.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a valid rlimit. A failure leaves the limit unchanged.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

//! The options that `pipeline run` and `pipeline plan` share.

use super::super::{SessionArgs, host_address};
use crate::ssh::SshArgs;
use crate::usage::Usage;
use anyhow::Context;
use multirail::Config;
use multirail::pipeline::describe::Description;
use multirail::pipeline::edge::Transport;
use multirail::pipeline::{Filters, Group};
use multirail_proto::units::parse_size;
use std::path::{Path, PathBuf};

/// The file of a pipeline, and the options that override it.
#[derive(clap::Args)]
pub(super) struct GroupArgs {
    /// The filters and streams, in TOML
    #[arg(value_name = "FILE.toml")]
    pub(super) file: PathBuf,
    /// The addresses of the hosts in the file: NAME=ADDRESS[:PORT],...
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named_host)]
    pub(super) hosts: Vec<(String, String)>,
    /// The chunk size of sources [default: that of the file, or the one for its guarantee, or 64k]
    #[arg(long, value_name = "SIZE", value_parser = chunk_bytes)]
    pub(super) chunk: Option<u64>,
    /// The transport of streams between hosts: shm, tcp, striped or ucx [default: that of the file,
    /// or the best of both hosts]
    #[arg(long, value_name = "NAME")]
    pub(super) transport: Option<Transport>,
    #[command(flatten)]
    pub(super) ssh: SshArgs,
    /// With --ssh, the folder of files and programs on the other hosts [default: the working
    /// directory of ssh]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true, requires = "ssh")]
    pub(super) ssh_root: PathBuf,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// A pipeline that is ready to start.
pub(super) struct Described {
    pub(super) description: Description,
    pub(super) known: Filters,
    pub(super) config: Config,
}

impl GroupArgs {
    /// Reads the file. Its paths and programs are relative to the current directory.
    pub(super) fn read(&self) -> anyhow::Result<Described> {
        let text = std::fs::read_to_string(&self.file).with_context(|| self.file.display().to_string())?;
        let mut description: Description = text.parse().map_err(|e| self.wrong(e))?;
        description.hosts.extend(self.hosts.iter().cloned());
        // A server that --ssh starts listens on the port of its host's address, or on any port.
        if !self.ssh.is_given() {
            for (name, address) in &mut description.hosts {
                *address = host_address(address).with_context(|| format!("host {name}"))?;
            }
        }
        description.chunk_bytes = self.chunk.or(description.chunk_bytes);
        description.transport = self.transport;
        let known = Filters::built_in(Path::new(".")).with_programs(Path::new("."));
        let described = Described { description, known, config: self.session.config()? };
        described.description.group(Config::default(), &described.known).map_err(|e| self.wrong(e))?;
        Ok(described)
    }

    fn wrong(&self, error: impl std::fmt::Display) -> anyhow::Error {
        Usage::of(format!("{}: {error}", self.file.display()))
    }
}

impl Described {
    pub(super) fn group(&self) -> anyhow::Result<Group> {
        Ok(self.description.group(self.config.clone(), &self.known)?)
    }
}

fn named_host(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() && !address.is_empty() => Ok((name.to_owned(), address.to_owned())),
        _ => Err("write NAME=ADDRESS or NAME=ADDRESS:PORT, separated by commas".to_owned()),
    }
}

fn chunk_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("a chunk has at least 1 byte".to_owned()),
        bytes => bytes.map_err(|e| e.to_string()),
    }
}

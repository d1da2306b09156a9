//! `multirail id`.

use crate::keys::KeysArgs;
use crate::printer::Printer;
use serde::Serialize;
use std::process::ExitCode;

/// Show this user's public key, by which servers and clients know it; it is made on first use
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail id\n\n\
    A server lets a client in whose key is a line of ~/.config/multirail/authorized_keys. A client accepts\n\
    a server whose name and key are a line of ~/.config/multirail/known_hosts.")]
pub struct IdArgs {
    #[command(flatten)]
    keys: KeysArgs,
}

#[derive(Serialize)]
struct Row {
    public_key: String,
}

pub fn run(args: IdArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let public_key = args.keys.identity()?.public_key().to_string();
    printer.row(&Row { public_key }, |row| row.public_key.clone());
    Ok(ExitCode::SUCCESS)
}

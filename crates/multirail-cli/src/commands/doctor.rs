//! `multirail doctor`.

use crate::printer::Printer;
use std::process::ExitCode;

/// Doctor
#[derive(clap::Args)]
pub struct DoctorArgs {}

pub fn run(_args: DoctorArgs, _printer: &Printer) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}

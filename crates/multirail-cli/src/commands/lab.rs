//! `multirail lab`.

use crate::printer::Printer;
use std::process::ExitCode;

/// Lab
#[derive(clap::Args)]
pub struct LabArgs {}

pub fn run(_args: LabArgs, _printer: &Printer) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}

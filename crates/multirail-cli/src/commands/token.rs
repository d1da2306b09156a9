//! `multirail token`.

use crate::printer::{self, Printer};
use multirail::Token;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Create a file with a new token of 256 random bits, which only its owner can read
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail token token\n  scp -p token storage1:\n\n\
    An existing file is never overwritten. All hosts that talk to each other need the same token.")]
pub struct TokenArgs {
    /// The file to create
    #[arg(value_name = "FILE", value_parser = file_parser())]
    file: PathBuf,
}

/// The file that was created.
#[derive(Serialize)]
struct Created<'a> {
    #[serde(serialize_with = "printer::lossy")]
    token_file: &'a Path,
}

pub fn run(args: TokenArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    Token::create_file(&args.file)?;
    let file = std::path::absolute(&args.file).unwrap_or(args.file);
    printer.row(&Created { token_file: &file }, |row| format!("a new token is in {}", row.token_file.display()));
    Ok(ExitCode::SUCCESS)
}

fn file_parser() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    use clap::builder::{PathBufValueParser, TypedValueParser};
    PathBufValueParser::new().try_map(|file| match file.as_os_str().as_encoded_bytes() {
        b"" => Err("the name is empty"),
        b"-" => Err("options that take a token file read `-` from stdin; for a file of that name, write ./-"),
        _ => Ok(file),
    })
}

//! The options that limit the rate, and the file that changes it.

use anyhow::{Context, ensure};
use multirail::RateLimit;
use multirail_proto::units::parse_bytes_s;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the file is read.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The longest content of the file.
const MAX_BYTES: u64 = 64;

#[derive(clap::Args)]
pub struct LimitArgs {
    /// The most that is sent and received together: bytes a second (`10m`), or a rate (`80mbit`)
    #[arg(long, value_name = "RATE", value_parser = parse_bytes_s)]
    limit: Option<u64>,
    /// A file with the RATE, or with `off`; what is written to it later holds within some seconds
    #[arg(long, value_name = "FILE", conflicts_with = "limit")]
    limit_file: Option<PathBuf>,
    /// Yield to other traffic on each network: slow down while others send
    #[arg(long)]
    pub background: bool,
}

impl LimitArgs {
    /// The file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.limit_file.as_deref()
    }

    /// The limit. If it is in a file, a thread follows the file for as long as the process lives.
    pub fn start(&self) -> anyhow::Result<Option<RateLimit>> {
        let Some(file) = self.limit_file.clone() else {
            return Ok(self.limit.map(|bytes_s| RateLimit::new(Some(bytes_s))));
        };
        let limit = RateLimit::new(read(&file)?);
        let followed = limit.clone();
        std::thread::Builder::new().name("limit".to_owned()).spawn(move || follow(&file, &followed))?;
        Ok(Some(limit))
    }
}

/// Sets the limit to what the file has. While the file cannot be read or understood, the limit stays.
fn follow(file: &Path, limit: &RateLimit) {
    let mut failed = None;
    loop {
        std::thread::sleep(READ_EVERY);
        match read(file) {
            Ok(bytes_s) => {
                failed = None;
                if bytes_s != limit.bytes_s() {
                    tracing::info!(bytes_s, "the limit has changed");
                    limit.set(bytes_s);
                }
            }
            Err(error) => {
                let why = format!("{error:#}");
                if failed.as_ref() != Some(&why) {
                    tracing::warn!(error = why, "the limit stays as it was");
                    failed = Some(why);
                }
            }
        }
    }
}

/// The limit in the file; `None` for `off`.
fn read(file: &Path) -> anyhow::Result<Option<u64>> {
    let shown = || format!("--limit-file {}", file.display());
    let mut text = String::new();
    let opened = std::fs::File::open(file).with_context(shown)?;
    opened.take(MAX_BYTES + 1).read_to_string(&mut text).with_context(shown)?;
    ensure!(text.len() as u64 <= MAX_BYTES, "{}: it has more than {MAX_BYTES} bytes", shown());
    match text.trim() {
        "off" => Ok(None),
        rate => parse_bytes_s(rate).map(Some).map_err(|why| anyhow::anyhow!("{}: {why}, or `off`", shown())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_in_files() {
        let file = std::env::temp_dir().join(format!("multirail-limit-{}", std::process::id()));
        let with = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(&file)
        };
        assert_eq!(with("10m\n").unwrap(), Some(10 << 20));
        assert_eq!(with(" off ").unwrap(), None);
        assert!(with("").unwrap_err().to_string().contains("or `off`"));
        assert!(with(&"1".repeat(65)).unwrap_err().to_string().contains("more than 64 bytes"));
        std::fs::remove_file(&file).unwrap();
        assert!(format!("{:#}", read(&file).unwrap_err()).contains("No such file"));
    }
}

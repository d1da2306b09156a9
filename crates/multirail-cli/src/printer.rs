//! The one place that writes to stdout and stderr: data on stdout, progress and errors on stderr.

use serde::Serialize;
use std::io::Write;

/// Owns all output of the command.
pub struct Printer {
    json: bool,
}

impl Printer {
    /// A printer of text, or of one JSON object a line.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether the caller asked for JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// One result: the JSON object in JSON mode, else the text that `human` makes of it.
    pub fn row<T: Serialize>(&self, row: &T, human: impl FnOnce(&T) -> String) {
        let line = if self.json {
            serde_json::to_string(row).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
        } else {
            human(row)
        };
        // A reader that closed the pipe has seen enough: not an error of ours.
        let _ = writeln!(std::io::stdout(), "{line}");
    }

    /// A line of text for people only: nothing in JSON mode.
    pub fn text(&self, line: impl AsRef<str>) {
        if !self.json {
            let _ = writeln!(std::io::stdout(), "{}", line.as_ref());
        }
    }

    /// Text of a format of its own, whether the caller asked for JSON or not.
    pub fn raw(&self, text: impl AsRef<str>) {
        let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
    }

    /// A note on stderr.
    pub fn note(&self, line: impl AsRef<str>) {
        let _ = writeln!(std::io::stderr(), "{}", line.as_ref());
    }

    /// An error on stderr, its causes and hints behind it, a line each.
    pub fn error(&self, error: &anyhow::Error) {
        if self.json {
            let _ = writeln!(std::io::stderr(), "{}", serde_json::json!({ "error": format!("{error:#}") }));
        } else {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
        }
    }
}

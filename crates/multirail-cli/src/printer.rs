//! The output of the command: data on stdout, notes and errors on stderr.
//!
//! Everything is [escaped](crate::escape), because it may have texts of a peer.

use crate::escape;
use crate::hints::hint_of;
use serde::{Serialize, Serializer};
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Writes all output of the command.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    json: bool,
}

impl Printer {
    /// A printer of text, or of one JSON object per line.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether the output is JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a result: as a JSON object in JSON mode, otherwise as the text that `human` returns.
    ///
    /// The text may have several lines. Where a peer's text must not begin a line of its own,
    /// `human` passes it through [`escape::one_line`].
    pub fn row<T: Serialize>(&self, row: &T, human: impl FnOnce(&T) -> String) {
        if !self.json {
            return self.text(human(row));
        }
        let object = serde_json::to_string(row).unwrap_or_else(|e| object(&e.to_string(), None));
        // It is no error if the reader has closed the pipe.
        let _ = writeln!(std::io::stdout(), "{}", escape::json(&object));
    }

    /// Prints a line of text. Prints nothing in JSON mode.
    pub fn text(&self, line: impl AsRef<str>) {
        if !self.json {
            let _ = writeln!(std::io::stdout(), "{}", escape::lines(line.as_ref()));
        }
    }

    /// Clears a terminal before the next output. Does nothing in JSON mode, or without a terminal.
    pub fn clear_screen(&self) {
        let mut stdout = std::io::stdout();
        if !self.json && stdout.is_terminal() {
            let _ = write!(stdout, "\x1b[H\x1b[2J");
        }
    }

    /// Prints text in a format of its own, also in JSON mode.
    pub fn raw(&self, text: impl AsRef<str>) {
        let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
    }

    /// Prints a note on stderr, on one line.
    pub fn note(&self, line: impl AsRef<str>) {
        let _ = writeln!(std::io::stderr(), "{}", escape::one_line(line.as_ref()));
    }

    /// Prints an error on stderr: what failed and the chain of causes, each once. The hint, if
    /// there is one, is on a line of its own.
    pub fn error(&self, error: &anyhow::Error) {
        let (text, hint) = (format!("{error:#}"), hint_of(error));
        let mut stderr = std::io::stderr();
        if self.json {
            let _ = writeln!(stderr, "{}", escape::json(&object(&text, hint)));
        } else {
            let _ = writeln!(stderr, "error: {}", escape::indented(&text));
            if let Some(hint) = hint {
                let _ = writeln!(stderr, "hint: {}", escape::indented(&hint));
            }
        }
    }
}

/// The JSON object of an error.
fn object(error: &str, hint: Option<String>) -> String {
    let mut object = serde_json::json!({ "error": error });
    if let Some(hint) = hint {
        object["hint"] = hint.into();
    }
    object.to_string()
}

/// Serializes a path of this host for people, for `serialize_with`. Bytes that are not UTF-8 become
/// U+FFFD.
pub fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

//! Text that may come from a peer, made harmless for a terminal and for a log.
//!
//! Names of files, reasons and other texts of a peer can have any characters. Some of them let a
//! terminal clear its screen or write its clipboard, or show text in another order. Such characters
//! are shown as escapes, for example `\u{1b}`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The text without control characters other than line feeds and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unsafe(c) && c != '\n', |c, out| out.extend(c.escape_default()))
}

/// The text on one line: line feeds are escaped, too.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, |c, out| out.extend(c.escape_default()))
}

/// The text with every line after the first one indented, so that none of them can be taken for a
/// message of its own.
pub fn indented(text: &str) -> String {
    let text = lines(text);
    match text.lines().skip(1).all(|line| line.is_empty() || line.starts_with(' ')) {
        true => text.into_owned(),
        false => text.trim_end().replace('\n', "\n  "),
    }
}

/// A JSON object without control characters. In JSON they occur in strings only.
pub fn json(object: &str) -> Cow<'_, str> {
    escaped(object, is_unsafe, |c, out| {
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// Writes events of the log to stderr, each as one line.
pub struct LogLine;

impl Write for LogLine {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = one_line(text.strip_suffix('\n').unwrap_or(&text));
        io::stderr().write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Whether a terminal could obey the character, or show others in a misleading order.
fn is_unsafe(c: char) -> bool {
    let changes_order = matches!(
        c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\t') || changes_order
}

fn escaped(text: &str, escapes: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(&escapes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if escapes(c) { escape(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clears the screen, writes the clipboard in two ways, and reverses the order of characters.
    const HOSTILE: &str = "a\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}\u{7f}z";

    #[test]
    fn control_characters_and_changes_of_order_are_escaped() {
        let shown = "a\\u{1b}[2J\\u{1b}]52;c;aGk=\\u{7}\\u{9b}2J\\u{202e}\\u{7f}z";
        assert_eq!((&*lines(HOSTILE), &*one_line(HOSTILE)), (shown, shown));
        assert_eq!(lines("a\tb\nc\rd"), "a\tb\nc\\rd");
        assert_eq!(one_line("a\tb\nc\rd"), "a\tb\\nc\\rd");
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in ["", "/a b/\\x \"é\" 日本 🚂", "שלום"] {
            assert!(matches!(one_line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn every_character_is_safe_afterwards_and_json_keeps_it() {
        let all: String = ('\0'..=char::MAX).collect();
        assert!(!one_line(&all).contains(is_unsafe));
        let object = serde_json::json!({ "all": all }).to_string();
        let safe = json(&object);
        assert!(!safe.contains(is_unsafe));
        let back: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert!(back["all"] == all.as_str(), "JSON has the same characters");
    }

    #[test]
    fn a_line_cannot_pass_for_a_message() {
        assert_eq!(indented("one"), "one");
        assert_eq!(indented("one\nerror: two\n three"), "one\n  error: two\n   three");
        assert_eq!(indented("its stderr ends:\n  one\n  two"), "its stderr ends:\n  one\n  two");
    }
}

//! The command of `--ssh`, and one session of it.

use super::{MAX_LINE_BYTES, lock};
use anyhow::Context;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many of the last lines of a session's stderr an error quotes.
const KEPT_LINES: usize = 5;
/// How long the last lines of an ended session are waited for. A connection that ssh shares with
/// later sessions can keep stderr open.
const LAST_LINES_WITHIN: Duration = Duration::from_millis(500);
/// How long `ssh -G` may take.
const CONFIGURATION_WITHIN: Duration = Duration::from_secs(5);
/// The interval between two looks at a process that is about to end.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A command like `ssh`: what follows it are a host and a command for that host's shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshCommand {
    program: String,
    options: Vec<String>,
}

/// One session. It is killed when this is dropped.
pub(super) struct SshSession {
    child: Arc<Mutex<Child>>,
    /// The other side ends at the end of its stdin.
    pub(super) stdin: Option<ChildStdin>,
}

/// A session, and what it prints.
pub(super) struct Started {
    pub(super) session: SshSession,
    pub(super) stdout: ChildStdout,
    pub(super) said: Said,
}

/// The last lines that a session has printed to stderr.
pub(super) struct Said {
    lines: Arc<Mutex<VecDeque<String>>>,
    done: mpsc::Receiver<()>,
}

impl FromStr for SshCommand {
    type Err = String;

    /// Words as in a shell: quotes and backslashes keep white space. Nothing else is expanded.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = shlex::split(text).ok_or("a quote is not closed")?.into_iter();
        let program = words.next().filter(|word| !word.is_empty()).ok_or("the command is empty")?;
        Ok(Self { program, options: words.collect() })
    }
}

impl Default for SshCommand {
    fn default() -> Self {
        Self { program: "ssh".to_owned(), options: Vec::new() }
    }
}

impl SshCommand {
    /// Starts the command `remote` on `host`. `on_line` gets each line of stderr.
    pub(super) fn start(
        &self,
        host: &str,
        remote: &str,
        on_line: impl Fn(&str) + Send + 'static,
    ) -> anyhow::Result<Started> {
        let mut child = self
            .on(host)
            .arg(remote)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.program))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let session = SshSession { child: Arc::new(Mutex::new(child)), stdin };
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else { anyhow::bail!("{} has no output", self.program) };
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let (end, done) = mpsc::channel();
        let said = Said { lines: lines.clone(), done };
        std::thread::Builder::new().spawn(move || {
            keep_lines(stderr, &lines, on_line);
            drop(end);
        })?;
        Ok(Started { session, stdout, said })
    }

    /// The name or address that ssh connects to for `host`, by its configuration. `None` if the
    /// command is not called `ssh`, or does not tell.
    pub(super) fn host_name(&self, host: &str) -> Option<String> {
        if Path::new(&self.program).file_name()? != "ssh" {
            return None;
        }
        let mut command = Command::new(&self.program);
        let command = command.args(&self.options).args(["-G", host]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let session = SshSession { child: Arc::new(Mutex::new(child)), stdin: None };
        let stdout = lock(&session.child).stdout.take()?;
        let (tell, told) = mpsc::channel();
        std::thread::Builder::new()
            .spawn(move || {
                let mut text = String::new();
                let read = stdout.take(1 << 20).read_to_string(&mut text);
                let _ = tell.send(read.map(|_| text));
            })
            .ok()?;
        // Then the process is killed, if it has not ended.
        host_name_in(&told.recv_timeout(CONFIGURATION_WITHIN).ok()?.ok()?)
    }

    fn on(&self, host: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).arg(host);
        command
    }
}

impl SshSession {
    pub(super) fn has_ended(&self) -> bool {
        !matches!(lock(&self.child).try_wait(), Ok(None))
    }

    /// A function that waits for the end of the process, for another thread.
    pub(super) fn ending(&self) -> impl FnOnce() -> Option<ExitStatus> + Send + 'static {
        let child = self.child.clone();
        move || {
            loop {
                match lock(&child).try_wait() {
                    Ok(None) => {}
                    ended => return ended.ok().flatten(),
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }
}

impl Drop for SshSession {
    fn drop(&mut self) {
        self.stdin = None;
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Said {
    /// The last lines of a session that has ended.
    pub(super) fn at_end(&self) -> Vec<String> {
        let _ = self.done.recv_timeout(LAST_LINES_WITHIN);
        lock(&self.lines).iter().cloned().collect()
    }
}

/// Passes on each line of the stderr of a session, and keeps the last ones.
fn keep_lines(stderr: impl Read, kept: &Mutex<VecDeque<String>>, on_line: impl Fn(&str)) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = plain(String::from_utf8_lossy(&line).trim_end());
        on_line(&line);
        let mut kept = lock(kept);
        kept.push_back(line);
        if kept.len() > KEPT_LINES {
            kept.pop_front();
        }
    }
}

/// The text of an error, which a server with `--json` prints as an object.
fn plain(line: &str) -> String {
    let object: Option<serde_json::Value> = serde_json::from_str(line).ok();
    object.as_ref().and_then(|o| o.get("error")?.as_str()).unwrap_or(line).to_owned()
}

/// The host name in the output of `ssh -G`.
fn host_name_in(configuration: &str) -> Option<String> {
    let mut fields = configuration.lines().filter_map(|line| line.split_once(' '));
    fields.find(|(key, _)| key.eq_ignore_ascii_case("hostname")).map(|(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_as_by_a_shell() {
        let command = |text: &str| text.parse::<SshCommand>();
        let of = |program: &str, options: &[&str]| {
            Ok(SshCommand { program: program.into(), options: options.iter().map(|o| (*o).to_owned()).collect() })
        };
        assert_eq!(command("ssh"), of("ssh", &[]));
        assert_eq!(command(" ssh -p 22 -i '/a b' -F \"c d\" "), of("ssh", &["-p", "22", "-i", "/a b", "-F", "c d"]));
        assert_eq!(command("ssh $HOME *"), of("ssh", &["$HOME", "*"]));
        assert_eq!(command("ssh 'x"), Err("a quote is not closed".to_owned()));
        assert_eq!(command("  "), Err("the command is empty".to_owned()));
    }

    #[test]
    fn errors_are_shown_as_text() {
        assert_eq!(plain("{\"error\":\"--root x: no\"}"), "--root x: no");
        assert!(["Permission denied", "{}", "{\"error\":1}"].iter().all(|line| plain(line) == *line));
    }

    #[test]
    fn the_host_name_of_a_configuration() {
        assert_eq!(host_name_in("host a\nuser b\nhostname fd00::1\nport 22\n").as_deref(), Some("fd00::1"));
        assert_eq!(host_name_in("hostname\nusage: ssh\n"), None);
        let other: SshCommand = "/bin/echo".parse().unwrap();
        assert_eq!(other.host_name("a"), None, "only ssh is asked");
    }
}

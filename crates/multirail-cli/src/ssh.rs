//! Servers started over ssh, for one command. The token goes over stdin, and a server ends when its stdin does, whichever way the
//! ssh session ends.

use anyhow::Context;
use multirail::Token;
use multirail::multicast::hosts::Entry;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What `--ssh` alone means. Nobody can answer a question for each of many hosts.
const DEFAULT_COMMAND: &str = "ssh -o BatchMode=yes -o ConnectTimeout=10";
/// Sessions begun at once: sshd turns away more than ten at a time from one host, but these go to different ones.
const AT_ONCE: usize = 64;
/// A server that is not up by then is left out.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// A session that has not ended by then is ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines of a session's stderr that are kept for the reason why it failed.
const KEPT_LINES: usize = 5;
/// No line of a server's is longer.
const MAX_LINE_BYTES: u64 = 4096;

/// Whether and how servers are started.
#[derive(clap::Args)]
pub struct SshArgs {
    /// Start the servers over ssh, or by another command like it, with a token made for this run
    #[arg(
        long,
        value_name = "CMD",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_COMMAND,
        conflicts_with_all = ["token_file"]
    )]
    ssh: Option<String>,
    /// What multirail is called on the hosts that --ssh starts it on
    #[arg(long, value_name = "PROGRAM", default_value = "multirail", requires = "ssh")]
    ssh_program: String,
}

/// What the servers are started for.
pub struct Purpose<'a> {
    /// The folder that they serve.
    pub root: &'a Path,
    pub allow_programs: bool,
}

/// Servers that run until this is dropped.
pub struct Servers {
    /// Made for this run.
    pub token: Token,
    /// Where each host listens, or why its server did not start.
    pub addresses: Vec<Result<String, String>>,
    running: Vec<Running>,
}

/// One ssh session.
struct Running {
    child: Arc<Mutex<Child>>,
    stdin: Option<ChildStdin>,
}

impl SshArgs {
    pub fn is_given(&self) -> bool {
        self.ssh.is_some()
    }

    /// Starts a server on each of the hosts, at its port or any, if the command line says so.
    pub async fn start(&self, hosts: &[Entry], purpose: Purpose<'_>) -> anyhow::Result<Option<Servers>> {
        match &self.ssh {
            None => Ok(None),
            Some(command) => start(command, &self.ssh_program, hosts, &purpose).await.map(Some),
        }
    }
}

async fn start(command: &str, program: &str, hosts: &[Entry], purpose: &Purpose<'_>) -> anyhow::Result<Servers> {
    let secret = random_secret()?;
    let mut servers = Servers { token: Token::new(secret.as_bytes()), addresses: Vec::new(), running: Vec::new() };
    for some in hosts.chunks(AT_ONCE) {
        let starting: Vec<_> = some
            .iter()
            .map(|host| {
                let remote = remote_command(program, purpose, host.port.unwrap_or(0))?;
                servers.spawn(command, host, &remote, &secret)
            })
            .collect();
        let end = tokio::time::Instant::now() + START_TIMEOUT;
        for (host, ready) in some.iter().zip(starting) {
            let told = match ready {
                Err(why) => Err(format!("{why:#}")),
                Ok(ready) => match tokio::time::timeout_at(end, ready).await {
                    Ok(Ok(told)) => told,
                    Ok(Err(_)) | Err(_) => Err(format!("no server came up within {} s", START_TIMEOUT.as_secs())),
                },
            };
            let address = told.map(|address| host.address_with(address.port()));
            servers.addresses.push(address.map_err(|why| format!("starting a server over ssh failed: {why}")));
        }
    }
    Ok(servers)
}

impl Servers {
    /// Begins a session; what comes back is told when the server listens, or has failed to.
    fn spawn(
        &mut self,
        command: &str,
        host: &Entry,
        remote: &str,
        secret: &str,
    ) -> anyhow::Result<oneshot::Receiver<Result<SocketAddr, String>>> {
        let mut words = command.split_whitespace();
        let ssh = words.next().context("--ssh: the command is empty")?;
        let mut child = Command::new(ssh)
            .args(words)
            .arg(&host.name)
            .arg(remote)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {ssh}"))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let child = Arc::new(Mutex::new(child));
        self.running.push(Running { child, stdin });
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else { anyhow::bail!("{ssh} has no output") };
        // A session that fails at once does not read it; what it says is the better reason.
        let stdin = self.running.last_mut().and_then(|r| r.stdin.as_mut());
        let _ = stdin.map(|stdin| writeln!(stdin, "{secret}").and_then(|()| stdin.flush()));
        let (tell, ready) = oneshot::channel();
        let name = host.shown();
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let listening = said.clone();
        let errors = std::thread::Builder::new().spawn(move || keep_lines(stderr, &name, &said))?;
        std::thread::Builder::new().spawn(move || {
            let mut line = String::new();
            let mut stdout = BufReader::new(stdout);
            let _ = stdout.by_ref().take(MAX_LINE_BYTES).read_line(&mut line);
            let told = match parse_ready(&line) {
                Some(address) => Ok(address),
                None => {
                    let _ = errors.join();
                    let said = listening.lock().unwrap_or_else(PoisonError::into_inner);
                    let said: Vec<&str> = said.iter().map(String::as_str).collect();
                    Err(match (said.join("; "), line.trim()) {
                        (said, "") if said.is_empty() => "it ended without a word".to_owned(),
                        (said, "") => said,
                        (said, line) => format!("it said {line:?} {said}"),
                    })
                }
            };
            let _ = tell.send(told);
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        })?;
        Ok(ready)
    }

    /// Ends the servers and waits for their sessions.
    pub async fn end(mut self) {
        self.running.iter_mut().for_each(|r| r.stdin = None);
        let end = Instant::now() + END_TIMEOUT;
        while Instant::now() < end && !self.running.iter().all(Running::has_ended) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Running {
    fn has_ended(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(child.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stdin = None;
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// What the shell on the other host gets.
fn remote_command(program: &str, purpose: &Purpose<'_>, port: u16) -> anyhow::Result<String> {
    let root = purpose.root.to_str().with_context(|| {
        format!("{} is no UTF-8, which the command for the other hosts must be", purpose.root.display())
    })?;
    let (program, root) = (quoted(program), quoted(root));
    let programs = if purpose.allow_programs { " --allow-programs" } else { "" };
    Ok(format!("exec {program} --json serve --root {root} --listen '[::]:{port}' --token-file -{programs}"))
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn parse_ready(line: &str) -> Option<SocketAddr> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    ready.get("listening")?.as_str()?.parse().ok()
}

/// Passes on what a session says, with the host's name, and keeps the last of it.
fn keep_lines(stderr: impl Read, host: &str, kept: &Mutex<VecDeque<String>>) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = plain(String::from_utf8_lossy(&line).trim());
        tracing::info!(%host, "{line}");
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(line);
        if kept.len() > KEPT_LINES {
            kept.pop_front();
        }
    }
}

/// Errors of a server with `--json` are objects.
fn plain(line: &str) -> String {
    let object: Option<serde_json::Value> = serde_json::from_str(line).ok();
    object.as_ref().and_then(|o| o.get("error")?.as_str()).unwrap_or(line).to_owned()
}

/// 256 random bits.
fn random_secret() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut bytes).context("/dev/urandom")?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_commands_are_quoted() {
        let command = |allow_programs| {
            remote_command("/opt/m r", &Purpose { root: Path::new("/a b/it's"), allow_programs }, 0).unwrap()
        };
        let serve = "exec '/opt/m r' --json serve --root '/a b/it'\\''s' --listen '[::]:0' --token-file -";
        assert_eq!((command(false), command(true)), (serve.to_owned(), format!("{serve} --allow-programs")));
    }

    #[test]
    fn the_first_line_says_where() {
        assert_eq!(parse_ready("{\"listening\":\"[::]:99\",\"root\":\"/\"}").map(|a| a.port()), Some(99));
        assert!(
            ["", "motd", "{}", "{\"listening\":1}", "{\"listening\":\"x\"}"].iter().all(|l| parse_ready(l).is_none())
        );
    }

    #[test]
    fn errors_are_told_as_text() {
        assert_eq!(plain("{\"error\":\"--root x: no\"}"), "--root x: no");
        assert!(["Permission denied", "{}", "{\"error\":1}"].iter().all(|line| plain(line) == *line));
    }

    #[test]
    fn secrets_differ() {
        let (one, other) = (random_secret().unwrap(), random_secret().unwrap());
        assert!(one != other && one.len() == 64);
    }
}

//! A server on each of several hosts.

use super::session::{SshCommand, SshSession, Started};
use super::{MAX_LINE_BYTES, quoted, random_secret};
use anyhow::Context;
use multirail::Token;
use multirail::multicast::hosts::Entry;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The command of `--ssh` without a value. It asks no questions, since with many hosts they could
/// not be answered.
const DEFAULT_COMMAND: &str = "ssh -o BatchMode=yes -o ConnectTimeout=10";
/// The most sessions that are started at the same time. They go to different hosts, so the limit of
/// sshd (ten at a time) does not apply.
const AT_ONCE: usize = 64;
/// How long a server may take to start before its host is left out.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long sessions may take to end before they are killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The options that start servers over ssh.
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
    ssh: Option<SshCommand>,
    /// The name of the multirail program on the other hosts
    #[arg(long, value_name = "PROGRAM", default_value = "multirail", requires = "ssh")]
    ssh_program: String,
}

/// What the servers serve.
pub struct Purpose<'a> {
    /// The root folder.
    pub root: &'a Path,
    /// Whether the servers run programs as filters of pipelines.
    pub allow_programs: bool,
}

/// Servers that run until this is dropped.
pub struct Servers {
    /// The token, which is made for this run.
    pub token: Token,
    /// The address of each server, or the reason why it did not start.
    pub addresses: Vec<Result<String, String>>,
    sessions: Vec<SshSession>,
}

impl SshArgs {
    pub fn is_given(&self) -> bool {
        self.ssh.is_some()
    }

    /// Starts a server on each of the hosts if `--ssh` is given. A server listens on the port of
    /// its host, or on any port.
    pub async fn start(&self, hosts: &[Entry], purpose: Purpose<'_>) -> anyhow::Result<Option<Servers>> {
        match &self.ssh {
            None => Ok(None),
            Some(command) => start(command, &self.ssh_program, hosts, &purpose).await.map(Some),
        }
    }
}

async fn start(command: &SshCommand, program: &str, hosts: &[Entry], purpose: &Purpose<'_>) -> anyhow::Result<Servers> {
    let secret = random_secret()?;
    let token = Token::from_secret(secret.as_bytes())?;
    let mut servers = Servers { token, addresses: Vec::new(), sessions: Vec::new() };
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
                    Ok(Err(_)) | Err(_) => {
                        Err(format!("the server did not start within {} s", START_TIMEOUT.as_secs()))
                    }
                },
            };
            let address = told.map(|address| host.address_with(address.port()));
            servers.addresses.push(address.map_err(|why| format!("starting a server over ssh failed: {why}")));
        }
    }
    Ok(servers)
}

impl Servers {
    /// Starts a session. The receiver gets the address of the server, or the reason why it failed.
    fn spawn(
        &mut self,
        command: &SshCommand,
        host: &Entry,
        remote: &str,
        secret: &str,
    ) -> anyhow::Result<oneshot::Receiver<Result<SocketAddr, String>>> {
        let name = host.shown();
        let Started { session, stdout, said } =
            command.start(&host.name, remote, move |line| tracing::info!(host = %name, "{line}"))?;
        self.sessions.push(session);
        // A session that fails at once does not read the token. Its stderr has the reason, so a
        // write error is ignored.
        let stdin = self.sessions.last_mut().and_then(|r| r.stdin.as_mut());
        let _ = stdin.map(|stdin| writeln!(stdin, "{secret}").and_then(|()| stdin.flush()));
        let (tell, ready) = oneshot::channel();
        std::thread::Builder::new().spawn(move || {
            let mut line = String::new();
            let mut stdout = BufReader::new(stdout);
            let _ = stdout.by_ref().take(MAX_LINE_BYTES).read_line(&mut line);
            let told = match parse_ready(&line) {
                Some(address) => Ok(address),
                None => {
                    let said = said.at_end();
                    Err(match (said.join("; "), line.trim()) {
                        (said, "") if said.is_empty() => "it ended without any output".to_owned(),
                        (said, "") => said,
                        (said, line) => format!("it printed {line:?} {said}"),
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
        self.sessions.iter_mut().for_each(|r| r.stdin = None);
        let end = Instant::now() + END_TIMEOUT;
        while Instant::now() < end && !self.sessions.iter().all(SshSession::has_ended) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The command for the shell of the other host.
fn remote_command(program: &str, purpose: &Purpose<'_>, port: u16) -> anyhow::Result<String> {
    let root = purpose.root.to_str().with_context(|| {
        format!("{} is not UTF-8, as the command for the other hosts requires", purpose.root.display())
    })?;
    let (program, root) = (quoted(program), quoted(root));
    let programs = if purpose.allow_programs { " --allow-programs" } else { "" };
    Ok(format!("exec {program} --json serve --root {root} --listen '[::]:{port}' --token-file -{programs}"))
}

fn parse_ready(line: &str) -> Option<SocketAddr> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    ready.get("listening")?.as_str()?.parse().ok()
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
    fn the_first_line_has_the_address() {
        assert_eq!(parse_ready("{\"listening\":\"[::]:99\",\"root\":\"/\"}").map(|a| a.port()), Some(99));
        assert!(
            ["", "motd", "{}", "{\"listening\":1}", "{\"listening\":\"x\"}"].iter().all(|l| parse_ready(l).is_none())
        );
    }
}

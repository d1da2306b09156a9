//! A server on the other host of ssh, for one copy.
//!
//! Each side makes a key pair that lives as long as its process, and ssh carries the public halves in
//! both directions. So both sides know each other as well as ssh knows them.

use super::dialogue::{Dialogue, Invitation, PortRange, Ready, Refusal, Step};
use super::session::{SshCommand, SshSession, Started};
use super::{MAX_LINE_BYTES, reach, script};
use crate::hints::error_with_hint;
use anyhow::{Context, anyhow};
use multirail::{Config, Identity, PublicKey, Session};
use std::ffi::CStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ExitStatus};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long the far side may take to end before ssh is killed.
const END_WITHIN: Duration = Duration::from_secs(5);
/// How long the end of ssh is waited for when a copy has failed, in case it is the reason.
const TELL_WITHIN: Duration = Duration::from_secs(1);
/// The lines of the far side that wait to be read.
const MAX_WAITING_LINES: usize = 64;
/// The program of this process, also if its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The error of a copy that a signal has ended.
pub const INTERRUPTED: &str = "interrupted; the same command continues the copy";

/// The options of a copy over ssh.
#[derive(Debug, clap::Args)]
pub struct CopySshArgs {
    /// The command that reaches the hosts of HOST:PATH, as ssh does [default: ssh]
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<SshCommand>,
    /// The name of the multirail program on the other host [default: multirail]
    #[arg(long, value_name = "PROGRAM", conflicts_with = "push_binary")]
    ssh_program: Option<String>,
    /// Lend this program to the other host for the length of the copy
    #[arg(long)]
    push_binary: bool,
    /// The TCP ports of the other host that the copy may use [default: any free one]
    #[arg(long, value_name = "PORT|FIRST-LAST")]
    ports: Option<PortRange>,
}

/// A server that runs until this is dropped.
pub struct CopyServer {
    host: String,
    session: SshSession,
    ended: oneshot::Receiver<Ended>,
    key: PublicKey,
    candidates: Vec<SocketAddr>,
}

/// How a session ended.
struct Ended {
    status: Option<ExitStatus>,
    /// The last lines of its stderr.
    said: Vec<String>,
}

impl CopySshArgs {
    /// The first option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.ssh.is_some(), "--ssh"),
            (self.ssh_program.is_some(), "--ssh-program"),
            (self.push_binary, "--push-binary"),
            (self.ports.is_some(), "--ports"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// Starts a server on `host`, which ssh knows, for data that is unencrypted if `plaintext`. `on_line` gets what ssh prints to stderr.
    ///
    /// Dropping the future ends what it has started.
    pub async fn start(
        &self,
        host: &str,
        plaintext: bool,
        on_line: impl Fn(&str) + Send + 'static,
    ) -> anyhow::Result<CopyServer> {
        let command = self.ssh.clone().unwrap_or_default();
        let (remote, dialogue, program) = match self.push_binary {
            false => {
                (script::installed(self.ssh_program.as_deref().unwrap_or("multirail")), Dialogue::installed(), None)
            }
            true => {
                let program = File::open(OWN_PROGRAM).with_context(|| format!("cannot read {OWN_PROGRAM}"))?;
                let bytes = program.metadata()?.len();
                (script::lent(bytes), Dialogue::lending(own_system()), Some(program))
            }
        };
        let Started { mut session, stdout, said } = command.start(host, &remote, on_line)?;
        let login = host.to_owned();
        let name = tokio::task::spawn_blocking(move || command.host_name(&login));
        let (tell_line, lines) = mpsc::channel(MAX_WAITING_LINES);
        let (tell_end, ended) = oneshot::channel();
        let ending = session.ending();
        std::thread::Builder::new().spawn(move || {
            pass_on(stdout, &tell_line);
            drop(tell_line);
            let status = ending();
            // The receiver may be gone.
            let _ = tell_end.send(Ended { status, said: said.at_end() });
        })?;
        let stdin = session.stdin.take().context("ssh has no stdin")?;
        let mut talk = Talk { host, dialogue, lines, ended, stdin: Some(stdin), program };
        let ready =
            talk.run(&Invitation { key: Identity::of_process().public_key(), plaintext, ports: self.ports }).await?;
        let Talk { ended, stdin, .. } = talk;
        session.stdin = stdin;
        let name = name.await?;
        let of_name = addresses_of(name.as_deref().unwrap_or_else(|| host_of(host))).await;
        let candidates = reach::candidates(&of_name, &ready);
        Ok(CopyServer { host: host.to_owned(), session, ended, key: ready.key, candidates })
    }
}

impl CopyServer {
    /// Runs `work` with a session to the server, and ends the server. The result is an error, too,
    /// if ssh ends before the work, or if `interrupted` completes.
    pub async fn run<T>(
        mut self,
        config: Config,
        interrupted: impl Future<Output = ()>,
        work: impl AsyncFnOnce(Session) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let config = config.identity(Identity::of_process());
        let copy = async { work(reach::connect(&self.host, &self.candidates, self.key, &config).await?).await };
        let done = tokio::select! {
            biased;
            done = copy => done,
            () = interrupted => return self.end(Err(anyhow!(INTERRUPTED))).await,
            ended = &mut self.ended => return Err(ended_early(&self.host, ended.ok())),
        };
        // Where ssh or the server has ended, the session knows it no later than this side.
        if done.is_err()
            && let Ok(ended) = tokio::time::timeout(TELL_WITHIN, &mut self.ended).await
        {
            return Err(ended_early(&self.host, ended.ok()));
        }
        self.end(done).await
    }

    /// Ends the server, which then removes what is incomplete, and waits for it.
    async fn end<T>(mut self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        self.session.stdin = None;
        let _ = tokio::time::timeout(END_WITHIN, &mut self.ended).await;
        done
    }
}

fn ended_early(host: &str, ended: Option<Ended>) -> anyhow::Error {
    let how = ended.map_or_else(|| "unknown".to_owned(), |ended| ended.how());
    anyhow!("the server on {host} ended during the copy: {how}")
}

/// The near side of the dialogue.
struct Talk<'a> {
    host: &'a str,
    dialogue: Dialogue,
    lines: mpsc::Receiver<String>,
    ended: oneshot::Receiver<Ended>,
    stdin: Option<ChildStdin>,
    /// What is lent.
    program: Option<File>,
}

impl Talk<'_> {
    /// Talks until the server listens.
    async fn run(&mut self, invitation: &Invitation) -> anyhow::Result<Ready> {
        while let Some(line) = self.lines.recv().await {
            let step = match self.dialogue.take(&line) {
                Ok(step) => step,
                Err(refusal) => {
                    // The session ends by itself now, after what it says to stderr.
                    self.stdin = None;
                    let _ = tokio::time::timeout(END_WITHIN, &mut self.ended).await;
                    return Err(explained(self.host, &refusal));
                }
            };
            match step {
                Step::Read => {}
                Step::SendProgram => {
                    let (program, stdin) = (self.program.take(), self.stdin.take());
                    let (Some(mut program), Some(mut stdin)) = (program, stdin) else { continue };
                    let sent = tokio::task::spawn_blocking(move || {
                        let sent = std::io::copy(&mut program, &mut stdin);
                        (stdin, sent)
                    });
                    let (stdin, sent) = sent.await?;
                    // Where the far side has ended, that is the reason.
                    tracing::debug!(?sent, "the program was sent");
                    self.stdin = Some(stdin);
                }
                Step::SendInvitation => {
                    let line = serde_json::to_string(invitation)?;
                    let stdin = self.stdin.as_mut().context("ssh has no stdin")?;
                    let sent = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
                    tracing::debug!(?sent, "the invitation was sent");
                }
                Step::Connect(ready) => return Ok(ready),
            }
        }
        let ended = (&mut self.ended).await.context("ssh cannot be waited for")?;
        match self.dialogue.ended(ended.status.and_then(|status| status.code())) {
            Some(refusal) => Err(explained(self.host, &refusal)),
            None => Err(anyhow!("ssh to {} failed: {}", self.host, ended.how())),
        }
    }
}

impl Ended {
    /// In words, with the last line that was printed.
    fn how(&self) -> String {
        let status = match self.status.map(|status| (status.code(), status.signal())) {
            // An error of ssh itself, and of a server that was killed.
            Some((Some(255), _)) if !self.said.is_empty() => None,
            Some((Some(255), _)) => Some("it has lost its connection, or the program there was killed".to_owned()),
            Some((Some(code), _)) => Some(format!("it ended with exit code {code}")),
            Some((None, Some(signal))) => Some(format!("signal {signal} has ended it")),
            _ => Some("it ended".to_owned()),
        };
        status.into_iter().chain(self.said.last().cloned()).collect::<Vec<_>>().join("; ")
    }
}

/// The error of a refusal, with what to do.
fn explained(host: &str, refusal: &Refusal) -> anyhow::Error {
    let hint = match refusal {
        Refusal::Absent(program) => format!(
            "install it there, so that `ssh {host} {program} --version` works, name it with `--ssh-program PATH`, or lend \
             this one with `--push-binary`"
        ),
        Refusal::Version { .. } => {
            "install the same version on both hosts, or lend this one with `--push-binary`".to_owned()
        }
        Refusal::System { .. } => "install multirail there".to_owned(),
        Refusal::Broken => format!(
            "`ssh {host}` runs it to see why; a program that is linked statically runs on every host of its kind"
        ),
        Refusal::NoDirectory => "install multirail there, or set TMPDIR there".to_owned(),
        Refusal::Failed(_) | Refusal::Unknown(_) => return anyhow!("{host} cannot serve the copy: {refusal}"),
    };
    error_with_hint(format!("{host} cannot serve the copy: {refusal}"), hint)
}

/// Passes on each line, and reads the rest when the receiver is gone.
fn pass_on(stdout: impl Read, lines: &mpsc::Sender<String>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        match stdout.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => drop(lines.blocking_send(String::from_utf8_lossy(&line).into_owned())),
        }
    }
}

/// The host of `[USER@]HOST`.
fn host_of(login: &str) -> &str {
    login.rsplit_once('@').map_or(login, |(_, host)| host)
}

async fn addresses_of(name: &str) -> Vec<IpAddr> {
    match tokio::net::lookup_host((name, 0)).await {
        Ok(found) => found.map(|address| address.ip()).collect(),
        // ssh may reach a name that only another host knows.
        Err(error) => {
            tracing::debug!(%error, name, "the name has no address here");
            Vec::new()
        }
    }
}

/// The kind of machine, as `uname -sm` prints it.
fn own_system() -> String {
    // SAFETY: all-zero bytes are a valid utsname, and the kernel fills it with texts that end in NUL.
    let (system, machine) = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        let text = |bytes: &[libc::c_char]| CStr::from_ptr(bytes.as_ptr()).to_string_lossy().into_owned();
        (text(&names.sysname), text(&names.machine))
    };
    format!("{system} {machine}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_what_uname_says() {
        let uname = std::process::Command::new("uname").arg("-sm").output().unwrap();
        assert_eq!(own_system(), String::from_utf8(uname.stdout).unwrap().trim());
    }

    #[test]
    fn logins_have_a_host() {
        assert_eq!((host_of("a"), host_of("u@a"), host_of("u@b@::1")), ("a", "a", "::1"));
    }

    #[test]
    fn an_end_is_told_by_the_last_line_of_ssh_or_by_its_status() {
        let ended = |status: i32, said: &[&str]| {
            let said = said.iter().map(|s| (*s).to_owned()).collect();
            Ended { status: Some(ExitStatus::from_raw(status)), said }.how()
        };
        assert_eq!(ended(255 << 8, &["a", "Host key verification failed."]), "Host key verification failed.");
        assert!(ended(255 << 8, &[]).contains("killed"));
        assert_eq!(ended(3 << 8, &["sh: no"]), "it ended with exit code 3; sh: no");
        assert_eq!(ended(9, &[]), "signal 9 has ended it");
    }
}

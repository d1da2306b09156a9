//! Runs `ip` and `tc`.

use crate::error::{Error, Result};
use nix::errno::Errno;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Checks that both commands can be run.
pub(crate) fn check_commands() -> Result<()> {
    for command in ["ip", "tc"] {
        run(command, &["-V"])?;
    }
    Ok(())
}

/// Runs a command and returns its output.
pub(super) fn run(command: &'static str, args: &[&str]) -> Result<Vec<u8>> {
    run_with_input(command, args, "")
}

/// Runs a command with `-batch`, which reads one subcommand from each of the lines. Does nothing
/// without lines.
pub(super) fn run_batch(command: &'static str, namespace: Option<&str>, lines: &str) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut args = namespace.map_or_else(Vec::new, |namespace| vec!["-netns", namespace]);
    args.extend(["-batch", "-"]);
    run_with_input(command, &args, lines).map(|_| ())
}

fn run_with_input(name: &'static str, args: &[&str], input: &str) -> Result<Vec<u8>> {
    let command = || std::iter::once(name).chain(args.iter().copied()).collect::<Vec<_>>().join(" ");
    let not_started = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => Error::CommandMissing(name),
        _ => Error::CommandStart { command: command(), source },
    };
    // The kernel kills the command if this process dies. Otherwise it could go on creating devices
    // that the next `down` does not find.
    let die_with_parent = || {
        // SAFETY: prctl gets no pointers.
        Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        Ok(())
    };
    let mut process = Command::new(name);
    process.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec, the closure makes one system call and does not allocate.
    unsafe { process.pre_exec(die_with_parent) };
    let mut child = process.spawn().map_err(not_started)?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that ends early breaks the pipe. Its stderr has the reason, so the error of the
        // pipe is ignored.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(not_started)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = explain(&String::from_utf8_lossy(&output.stderr), input);
    Err(Error::Command { command: command(), stderr })
}

/// Replaces the line number in "Command failed -:3" by the line of the input.
fn explain(stderr: &str, lines: &str) -> String {
    let failed_line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("Command failed -:"))
        .and_then(|number| lines.lines().nth(number.trim().parse::<usize>().ok()?.checked_sub(1)?));
    let messages: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("Command failed")).collect();
    match failed_line {
        Some(line) => format!("{} (at `{line}`)", messages.join("; ")),
        None => messages.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_failed_is_quoted() {
        let text = explain("Error: no such thing.\nCommand failed -:2\n", "first\nsecond\n");
        assert_eq!(text, "Error: no such thing. (at `second`)");
        assert_eq!(explain("Error: x\nCommand failed -:9\n", "first\n"), "Error: x");
    }
}

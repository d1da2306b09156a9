//! Every call of `ip` and `tc`. Many commands go to one process by `-batch`, so that a lab is up in a moment.

use crate::error::{Error, Result};
use crate::plan::Port;
use crate::shaping::Shaping;
use nix::errno::Errno;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What a silent cut is found by when it is healed.
const CUT_FILTER: &str = "ingress pref 1 handle 0xc07 protocol all bpf";
/// The link group of all ports, by which they are deleted at once: each deletion by itself waits for a grace period.
const PORT_GROUP: u32 = 0x6d72;
/// The kernel's own limit for a device that does not say otherwise.
const GSO_MAX_SEGS_DEFAULT: u32 = 65_535;

/// Whether both commands can be run. Asked before anything is made.
pub(crate) fn check_commands() -> Result<()> {
    for command in ["ip", "tc"] {
        run(Command::new(command).arg("-V"), command, "")?;
    }
    Ok(())
}

/// Removes a namespace's name, also where a crash left only the file.
pub(crate) fn delete_namespace(namespace: &str) -> Result<()> {
    run(Command::new("ip").args(["netns", "delete", namespace]), "ip", "")
}

/// Commands for the links and queues of one namespace (or, for [`Batch::initial`], of the caller's).
/// `ip`'s run before `tc`'s.
pub(crate) struct Batch<'a> {
    namespace: Option<&'a str>,
    ip: String,
    tc: String,
}

impl<'a> Batch<'a> {
    /// Commands that run in the caller's namespace: those that make namespaces and the pairs between them.
    pub(crate) fn initial() -> Self {
        Self { namespace: None, ip: String::new(), tc: String::new() }
    }

    pub(crate) fn in_namespace(namespace: &'a str) -> Self {
        Self { namespace: Some(namespace), ip: String::new(), tc: String::new() }
    }

    pub(crate) fn run(&self) -> Result<()> {
        batch("ip", self.namespace, &self.ip)?;
        batch("tc", self.namespace, &self.tc)
    }

    pub(crate) fn add_namespace(&mut self, namespace: &str) {
        self.ip(format!("netns add {namespace}"));
    }

    pub(crate) fn add_pair(&mut self, one: &Port, other: &Port, mtu_bytes: u32) {
        let end = |port: &Port| {
            let Port { name, index, namespace, .. } = port;
            format!("name {name} index {index} mtu {mtu_bytes} group {PORT_GROUP} netns {namespace}")
        };
        self.ip(format!("link add {} type veth peer {}", end(one), end(other)));
    }

    pub(crate) fn add_bridge(&mut self, bridge: &str, mtu_bytes: u32) {
        self.ip(format!("link add name {bridge} mtu {mtu_bytes} type bridge"));
        self.set_up(bridge);
    }

    pub(crate) fn join_bridge(&mut self, port: &str, bridge: &str) {
        self.ip(format!("link set dev {port} master {bridge}"));
    }

    pub(crate) fn add_ipv4(&mut self, port: &str, address: Ipv4Addr) {
        self.ip(format!("address add {address}/24 broadcast + dev {port}"));
    }

    /// Duplicate detection would keep the address from being used for a second.
    pub(crate) fn add_ipv6(&mut self, port: &str, address: Ipv6Addr) {
        self.ip(format!("address add {address}/64 dev {port} nodad"));
    }

    pub(crate) fn set_up(&mut self, port: &str) {
        self.ip(format!("link set dev {port} up"));
    }

    pub(crate) fn set_down(&mut self, port: &str) {
        self.ip(format!("link set dev {port} down"));
    }

    pub(crate) fn delete_all_ports(&mut self) {
        self.ip(format!("link delete group {PORT_GROUP}"));
    }

    /// HTB charges a GSO packet as one that has already left, so TCP must not make any: one segment a packet.
    pub(crate) fn shape(&mut self, port: &str, shaping: &Shaping) {
        self.ip(format!("link set dev {port} gso_max_segs 1"));
        self.tc(format!("qdisc add dev {port} root handle 1: htb default 1"));
        self.tc(format!("class add dev {port} {}", htb_class(shaping)));
        self.tc(format!("qdisc add dev {port} parent 1:1 handle 10: bfifo limit {}", shaping.queue_bytes));
    }

    /// A new rate for a port that has one.
    pub(crate) fn reshape(&mut self, port: &str, shaping: &Shaping) {
        self.tc(format!("class change dev {port} {}", htb_class(shaping)));
        self.tc(format!("qdisc change dev {port} parent 1:1 handle 10: bfifo limit {}", shaping.queue_bytes));
    }

    pub(crate) fn unshape(&mut self, port: &str) {
        self.ip(format!("link set dev {port} gso_max_segs {GSO_MAX_SEGS_DEFAULT}"));
        self.tc(format!("qdisc delete dev {port} root"));
    }

    /// Drops everything that arrives, so that the sender sees neither an error nor the loss of its carrier.
    ///
    /// A filter of one instruction (return TC_ACT_SHOT) needs only cls_bpf, while matchall and gact may be missing.
    /// It is the first on the ingress hook, and leaves the filters of others and the egress hook alone.
    pub(crate) fn cut(&mut self, port: &str) {
        self.tc(format!("qdisc replace dev {port} clsact"));
        self.tc(format!("filter replace dev {port} {CUT_FILTER} direct-action bytecode '1,6 0 0 2'"));
    }

    pub(crate) fn heal(&mut self, port: &str) {
        self.tc(format!("filter delete dev {port} {CUT_FILTER}"));
    }

    fn ip(&mut self, line: String) {
        self.ip.push_str(&line);
        self.ip.push('\n');
    }

    fn tc(&mut self, line: String) {
        self.tc.push_str(&line);
        self.tc.push('\n');
    }
}

/// The quantum matters only between classes; given, the kernel does not warn of one that it derives.
fn htb_class(shaping: &Shaping) -> String {
    let Shaping { rate, burst_bytes, frame_bytes, .. } = shaping;
    let rate = format!("{}bit", rate.bit_s());
    format!(
        "parent 1: classid 1:1 htb rate {rate} ceil {rate} burst {burst_bytes} cburst {burst_bytes} \
         quantum {frame_bytes} mtu {frame_bytes}"
    )
}

fn batch(command: &'static str, namespace: Option<&str>, lines: &str) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut process = Command::new(command);
    if let Some(namespace) = namespace {
        process.args(["-netns", namespace]);
    }
    run(process.args(["-batch", "-"]), command, lines)
}

fn run(process: &mut Command, name: &'static str, stdin: &str) -> Result<()> {
    let args = process.get_args().map(|arg| arg.to_string_lossy().into_owned());
    let spelled = std::iter::once(name.to_owned()).chain(args).collect::<Vec<_>>().join(" ");
    let failed = |stderr: String| Error::Command { command: spelled.clone(), stderr };
    // A command that outlived us would go on making what the next `down` has just looked for.
    let die_with_us = || {
        // SAFETY: no memory is passed.
        Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        Ok(())
    };
    // SAFETY: between fork and exec only that system call is made.
    unsafe { process.pre_exec(die_with_us) };
    let mut child =
        process.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(|e| {
            if e.kind() == ErrorKind::NotFound { Error::CommandMissing(name) } else { failed(e.to_string()) }
        })?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that ended early says why on stderr; the broken pipe says nothing more.
        let _ = pipe.write_all(stdin.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(explain(&stderr, stdin)))
}

/// "Command failed -:3" names a line that only we know.
fn explain(stderr: &str, lines: &str) -> String {
    let failed_line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("Command failed -:"))
        .and_then(|number| lines.lines().nth(number.trim().parse::<usize>().ok()?.checked_sub(1)?));
    let words: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("Command failed")).collect();
    match failed_line {
        Some(line) => format!("{} (at `{line}`)", words.join("; ")),
        None => words.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_line_is_named() {
        let text = explain("Error: no such thing.\nCommand failed -:2\n", "first\nsecond\n");
        assert_eq!(text, "Error: no such thing. (at `second`)");
        assert_eq!(explain("Error: x\nCommand failed -:9\n", "first\n"), "Error: x");
    }
}

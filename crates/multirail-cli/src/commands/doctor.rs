//! `multirail doctor`: what this machine offers, and what a missing feature means for the user.
//!
//! Each check tries the feature instead of comparing versions: it opens a socket, or adds a queue
//! to the loopback of a temporary namespace. Nothing on the machine changes. Without root, checks
//! that need it are `unknown`.

use crate::printer::Printer;
use serde::Serialize;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

/// Show what this machine offers, and what each missing feature means
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  multirail doctor
  sudo multirail doctor --json | jq 'select(.status != \"ok\")'

Nothing on the machine changes. Without root, some features cannot be tried and are `unknown`.")]
pub struct DoctorArgs {}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    status: Status,
    /// What was found, or why the check was not possible.
    detail: String,
    /// What the result means for the user.
    meaning: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Lacking,
    Unknown,
}

/// The status and the detail of a check.
struct Found(Status, String);

pub fn run(_args: DoctorArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let mut rows = machine();
    rows.extend(queues());
    rows.extend(kernel_interfaces());
    rows.extend(tcp());
    for row in &rows {
        printer.row(row, text);
    }
    let count = |status| rows.iter().filter(|row| row.status == status).count();
    printer.text(format!(
        "{} found, {} lacking, {} unknown",
        count(Status::Ok),
        count(Status::Lacking),
        count(Status::Unknown)
    ));
    Ok(ExitCode::SUCCESS)
}

fn text(row: &Row) -> String {
    let status = match row.status {
        Status::Ok => "ok",
        Status::Lacking => "lacking",
        Status::Unknown => "unknown",
    };
    let meaning = if row.status == Status::Ok { String::new() } else { format!("\n{:23}{}", "", row.meaning) };
    format!("{status:8} {:13} {}{meaning}", row.name, row.detail)
}

fn row(name: &'static str, Found(status, detail): Found, if_ok: &str, if_lacking: &str) -> Row {
    let meaning = match status {
        Status::Ok => if_ok.to_owned(),
        Status::Lacking => if_lacking.to_owned(),
        Status::Unknown => format!("if it is missing: {if_lacking}"),
    };
    Row { name, status, detail, meaning }
}

fn machine() -> Vec<Row> {
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let enough = if cores > 1 { Status::Ok } else { Status::Lacking };
    vec![
        row("kernel", Found(Status::Ok, format!("Linux {kernel}")), "the kernel of the other rows", ""),
        row(
            "cores",
            Found(enough, format!("{cores}")),
            "sender, receiver and kernel can work at the same time",
            "checksums and the network share one core, which limits rails of several Gbit/s",
        ),
        row(
            "privileges",
            privileges(),
            "`multirail lab` and `multirail place` can be used",
            "transfers do not need them; `multirail lab` and `multirail place` need root",
        ),
        row(
            "namespaces",
            in_throwaway_namespace(|| Found(Status::Ok, "a network namespace can be created".into())),
            "`multirail lab` can create hosts",
            "`multirail lab` cannot create test networks",
        ),
        row(
            "iproute2",
            commands(&["ip", "tc"]),
            "`multirail lab` can create rails",
            "`multirail lab` cannot create test networks: install the package iproute2",
        ),
        row("open-files", open_files(), "enough for any useful number of channels", FEW_OPEN_FILES),
    ]
}

const FEW_OPEN_FILES: &str =
    "each channel and each file in transfer needs one; for many peers, raise the limit with `ulimit -n`";

fn queues() -> Vec<Row> {
    let qdisc =
        |name: &'static str, args: &'static [&'static str]| in_throwaway_namespace(move || add_qdisc(name, args));
    vec![
        row(
            "htb",
            qdisc("htb", &["root", "htb"]),
            "rails of a lab can have a rate",
            "rails of a lab cannot have a rate",
        ),
        row(
            "netem",
            qdisc("netem", &["root", "netem", "delay", "1ms"]),
            "the kernel can add delay and loss to a rail",
            "a relay in user space adds delay and loss to the rails of a lab, which costs CPU time",
        ),
        row(
            "fq",
            qdisc("fq", &["root", "fq"]),
            "the kernel can pace connections in its queue",
            "BBR paces by a timer for each connection, which costs more CPU time above some 100 Mbit/s; nothing fails",
        ),
        row(
            "clsact",
            qdisc("clsact", &["clsact"]),
            "`multirail place` can attach to ports",
            "`multirail place` cannot attach to ports, and a lab cannot cut a rail",
        ),
    ]
}

fn kernel_interfaces() -> Vec<Row> {
    vec![
        row(
            "mptcp",
            mptcp(),
            "Multipath TCP can be compared with multirail",
            "multirail does not need it; only comparisons with Multipath TCP are not possible",
        ),
        row(
            "bpf",
            bpf(),
            "`multirail place` can load its program",
            "`multirail place` cannot steer the streams of other programs; transfers do not need it",
        ),
        row(
            "btf",
            exists("/sys/kernel/btf/vmlinux"),
            "BPF programs adapt to this kernel",
            "a BPF program must be built for this kernel, so the program of `multirail place` may not load",
        ),
        row(
            "af_xdp",
            socket(libc::AF_XDP, libc::SOCK_RAW, 0),
            "packets can bypass the network stack of the kernel",
            "multirail does not need it; only tools that bypass the network stack do not work",
        ),
        row("io_uring", io_uring(), "system calls can be made in batches", "multirail does not need it; it uses epoll"),
        row(
            "tun",
            tun(),
            "a relay in user space can add delay and loss to a rail",
            "if netem is missing, too, rails of a lab cannot have a delay or a loss",
        ),
    ]
}

/// The round-trip time for which a buffer should carry 1 Gbit/s: that of a WAN.
const WAN_RTT_MS: f64 = 100.0;

fn tcp() -> Vec<Row> {
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let default = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let congestion_control = match (available, default) {
        (Some(available), Some(default)) => {
            let status = if available.split(' ').any(|name| name == "bbr") { Status::Ok } else { Status::Lacking };
            Found(status, format!("{default} by default, of {available}"))
        }
        _ => Found(Status::Unknown, "/proc/sys/net/ipv4 cannot be read".into()),
    };
    let mut rows = vec![row(
        "tcp-cc",
        congestion_control,
        "with bbr, one channel can fill a rail with some loss",
        "without bbr, a long rail with loss needs several channels; `modprobe tcp_bbr` may add it",
    )];
    rows.push(row(
        "tcp-cc-lab",
        allowed_congestion_control(),
        "hosts of a lab can use any congestion control",
        "hosts of a lab can use only the allowed ones; the sysctl net.ipv4.tcp_allowed_congestion_control can allow more",
    ));
    rows.push(buffer_row("tcp-wmem", "/proc/sys/net/ipv4/tcp_wmem", PAYLOAD_OF_AUTOTUNED, "as a sender"));
    rows.push(buffer_row("tcp-rmem", "/proc/sys/net/ipv4/tcp_rmem", PAYLOAD_OF_AUTOTUNED, "as a receiver"));
    let by_hand = "if a program sets its buffer size";
    rows.push(buffer_row("wmem_max", "/proc/sys/net/core/wmem_max", PAYLOAD_OF_SET, by_hand));
    rows.push(buffer_row("rmem_max", "/proc/sys/net/core/rmem_max", PAYLOAD_OF_SET, by_hand));
    rows
}

/// The payload share of an autotuned buffer. The kernel charges the rest for the packets.
const PAYLOAD_OF_AUTOTUNED: f64 = 0.5;
/// The payload share of a size that a program sets, which the kernel doubles for the same reason.
const PAYLOAD_OF_SET: f64 = 1.0;

/// The row of a buffer limit. The limit is the last number of the sysctl: tcp_wmem has three
/// (minimum, initial size, limit) and wmem_max has one.
fn buffer_row(name: &'static str, path: &str, payload: f64, who: &str) -> Row {
    let limit_bytes = read(path).and_then(|text| text.split_whitespace().last()?.parse::<f64>().ok());
    let Some(limit_bytes) = limit_bytes else {
        return row(
            name,
            Found(Status::Unknown, format!("{path} cannot be read")),
            "",
            "long rails need several channels",
        );
    };
    const GBIT_S_IN_BITS_A_MS: f64 = 1e6;
    let rtt_ms = limit_bytes * payload * 8.0 / GBIT_S_IN_BITS_A_MS;
    let status = if rtt_ms >= WAN_RTT_MS { Status::Ok } else { Status::Lacking };
    let detail = format!("{} KiB, enough for 1 Gbit/s at an RTT of {rtt_ms:.1} ms", limit_bytes as u64 / 1024);
    let lacking = format!("{who}, a rail with an RTT above {rtt_ms:.1} ms needs several channels to carry 1 Gbit/s");
    row(name, Found(status, detail), "one channel carries 1 Gbit/s over a continent", &lacking)
}

fn allowed_congestion_control() -> Found {
    let allowed = read("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let (Some(allowed), Some(available)) = (allowed, available) else {
        return Found(Status::Unknown, "/proc/sys/net/ipv4 cannot be read".into());
    };
    let all = available.split(' ').all(|name| allowed.split(' ').any(|other| other == name));
    Found(if all { Status::Ok } else { Status::Lacking }, format!("{allowed} allowed, of {available}"))
}

fn privileges() -> Found {
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_ADMIN: u32 = 21;
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(effective) = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else {
        return Found(Status::Unknown, "/proc/self/status cannot be read".into());
    };
    let missing: Vec<&str> = [(CAP_NET_ADMIN, "CAP_NET_ADMIN"), (CAP_SYS_ADMIN, "CAP_SYS_ADMIN")]
        .into_iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| name)
        .collect();
    match missing.as_slice() {
        [] => Found(Status::Ok, "CAP_NET_ADMIN and CAP_SYS_ADMIN".into()),
        missing => Found(Status::Lacking, format!("without {}", missing.join(" and "))),
    }
}

/// Runs a check on a thread in a network namespace of its own, which ends with the thread.
fn in_throwaway_namespace(work: impl FnOnce() -> Found + Send) -> Found {
    let outcome = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // SAFETY: unshare gets no pointers, and affects only this thread.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                return from_error(&io::Error::last_os_error(), "cannot create a namespace for the check");
            }
            work()
        });
        worker.join()
    });
    outcome.unwrap_or_else(|_| Found(Status::Unknown, "the check failed".into()))
}

fn add_qdisc(name: &str, args: &[&str]) -> Found {
    let added = Command::new("tc").args(["qdisc", "add", "dev", "lo"]).args(args).stdin(Stdio::null()).output();
    match added {
        Ok(output) if output.status.success() => Found(Status::Ok, "the kernel has it".into()),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let why = stderr.lines().next().unwrap_or("no reason given");
            Found(Status::Lacking, format!("the kernel refused {name}: {}", why.trim_start_matches("Error: ")))
        }
        Err(_) => Found(Status::Unknown, "the check needs `tc`, which was not found".into()),
    }
}

fn commands(names: &[&str]) -> Found {
    let runs = |name: &&&str| {
        let tried =
            Command::new(name).arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        !tried.is_ok_and(|status| status.success())
    };
    let missing: Vec<&str> = names.iter().filter(runs).copied().collect();
    match missing.as_slice() {
        [] => Found(Status::Ok, format!("{} were found", names.join(" and "))),
        missing => Found(Status::Lacking, format!("{} not found", missing.join(" and "))),
    }
}

fn open_files() -> Found {
    const ENOUGH: u64 = 1024;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return Found(Status::Unknown, io::Error::last_os_error().to_string());
    }
    let status = if limit.rlim_cur >= ENOUGH { Status::Ok } else { Status::Lacking };
    Found(status, format!("{}, can be raised to {}", limit.rlim_cur, limit.rlim_max))
}

fn mptcp() -> Found {
    match socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP) {
        Found(Status::Ok, _) => Found(Status::Ok, "a socket can be created".into()),
        Found(_, why) => match read("/proc/sys/net/mptcp/enabled").as_deref() {
            Some("0") => Found(Status::Lacking, "switched off by the sysctl net.mptcp.enabled".into()),
            _ => Found(Status::Lacking, why),
        },
    }
}

fn socket(family: i32, kind: i32, protocol: i32) -> Found {
    // SAFETY: socket gets no pointers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    from_fd(fd.into(), "a socket can be created", "a socket")
}

fn bpf() -> Found {
    /// The beginning of `union bpf_attr`, which is all that BPF_MAP_CREATE requires.
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
    }
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    let attr = MapCreate { map_type: BPF_MAP_TYPE_ARRAY, key_size: 4, value_size: 4, max_entries: 1, map_flags: 0 };
    // SAFETY: the attributes outlive the call, and their size is correct.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, &raw const attr, size_of::<MapCreate>()) };
    from_fd(fd, "a map can be created", "a map")
}

fn io_uring() -> Found {
    const PARAMS_BYTES: usize = 120;
    let mut params = [0_u64; PARAMS_BYTES / 8];
    // SAFETY: the buffer has the size and the alignment of struct io_uring_params, and outlives the
    // call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    match read("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("1" | "2") if fd < 0 => {
            Found(Status::Lacking, "switched off by the sysctl kernel.io_uring_disabled".into())
        }
        _ => from_fd(fd, "a ring can be created", "a ring"),
    }
}

/// Opening the device does not create an interface.
fn tun() -> Found {
    match fs::File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Found(Status::Ok, "/dev/net/tun can be opened".into()),
        Err(error) => from_error(&error, "/dev/net/tun"),
    }
}

fn exists(path: &str) -> Found {
    match fs::metadata(path) {
        Ok(_) => Found(Status::Ok, format!("{path} exists")),
        Err(error) => from_error(&error, path),
    }
}

/// The result of a system call that returns a file descriptor. Closes the descriptor.
fn from_fd(fd: libc::c_long, if_ok: &str, what: &str) -> Found {
    let error = io::Error::last_os_error();
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Found(Status::Ok, if_ok.to_owned())
        }
        _ => from_error(&error, what),
    }
}

/// The result of an error. A missing permission does not tell whether the feature exists.
fn from_error(error: &io::Error, what: &str) -> Found {
    let status = if error.kind() == io::ErrorKind::PermissionDenied { Status::Unknown } else { Status::Lacking };
    Found(status, format!("{what}: {error}"))
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().replace('\t', " "))
}

//! Broadcasts between hosts whose clocks differ: the time of day by libfaketime, and the time since the
//! start by time namespaces.

#[allow(dead_code)]
mod common;

use common::{MULTIRAIL, Place, listening, stderr};
use multirail_lab::{Clusters, Lab};
use multirail_testing::{Requirement, skip};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// 4 MB over 10 Mbit/s take three seconds.
const FILE_BYTES: usize = 4_000_000;
const DAY_S: i64 = 24 * 3600;
/// A folder of an interrupted broadcast.
const INTERRUPTED: &str = ".multirail-0123456789abcdef0123456789abcdef.multirail-part";

/// The library of libfaketime for programs with threads.
fn libfaketime() -> Option<PathBuf> {
    let below = |folder: &str| {
        let found = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        found.map(|path| path.join("faketime")).chain([PathBuf::from(folder).join("faketime")])
    };
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].into_iter().flat_map(below);
    folders.map(|folder| folder.join("libfaketimeMT.so.1")).find(|path| path.exists())
}

/// Why no process can have clocks of its own here.
fn lacks() -> Option<(Requirement, String)> {
    if let Err(why) = Lab::supported() {
        return Some((Requirement::Namespaces, why.to_string()));
    }
    let unshare = Command::new("unshare").args(["--mount", "--time", "--monotonic", "1", "--fork", "true"]).output();
    match unshare {
        Ok(done) if done.status.success() => {}
        Ok(done) => return Some((Requirement::TimeNamespaces, stderr(&done).trim().to_owned())),
        Err(error) => return Some((Requirement::TimeNamespaces, format!("unshare: {error}"))),
    }
    let installed = libfaketime().is_some();
    (!installed).then(|| (Requirement::Faketime, "libfaketimeMT.so.1 is not installed".to_owned()))
}

/// The clocks of a host.
struct Clocks {
    /// How far its time of day is ahead.
    day_s: i64,
    /// How far its time since the start is ahead. It cannot be behind that of a machine that has just
    /// started.
    monotonic_s: u32,
}

/// Two clusters of two hosts. `a0` is the root and has the right time.
struct Net {
    lab: Lab,
    place: Place,
}

impl Net {
    fn up(name: &str) -> Self {
        let clusters = Clusters::new(&[("a", 2), ("b", 2)]).link_default("40mbit".parse().ok());
        let lab = Lab::temporary(&clusters.link("a-b=10mbit".parse().unwrap()).topology().unwrap()).unwrap();
        let place = Place::new(name);
        place.token();
        Self { lab, place }
    }

    /// The file with a host's time of day. It is in the host's folder, since a server sees no other.
    fn day(&self, host: &str) -> PathBuf {
        self.place.path(host).join("day")
    }

    /// Sets a host's time of day, also that of its running processes.
    fn set_day(&self, host: &str, ahead_s: i64) {
        fs::create_dir_all(self.place.path(host)).unwrap();
        // The file is never seen half written.
        self.place.write("day", &format!("{ahead_s:+}"));
        fs::rename(self.place.path("day"), self.day(host)).unwrap();
    }

    /// A program on a host, by the host's clocks.
    fn program(&self, host: &str, clocks: &Clocks, program: &[&str]) -> Command {
        self.set_day(host, clocks.day_s);
        let ahead_s = clocks.monotonic_s.to_string();
        let mut command = self.lab.command(host, "unshare").unwrap();
        command.args(["--mount", "--time", "--monotonic", &ahead_s, "--boottime", &ahead_s, "--fork", "--kill-child"]);
        // libfaketime leaves files in /dev/shm when a process is killed. These are in a folder that ends
        // with the process.
        let preload = format!("LD_PRELOAD={}", libfaketime().unwrap().display());
        let start = "mount -t tmpfs none /dev/shm && exec env \"$@\"";
        command.args(["sh", "-c", start, "sh", &preload]).args(program);
        command.env("FAKETIME_TIMESTAMP_FILE", self.day(host)).env("FAKETIME_NO_CACHE", "1");
        // Time namespaces change the time since the start. The times of files are those of the file system.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1").env("FAKE_UTIME", "0");
        command.env("MULTIRAIL_KEYS", common::keys()).current_dir(&self.place.dir);
        command
    }

    fn multirail(&self, host: &str, clocks: &Clocks, args: &[&str]) -> Command {
        self.program(host, clocks, &[&[MULTIRAIL], args].concat())
    }

    /// The same command by the right time.
    fn root(&self, args: &[&str]) -> Command {
        let mut command = self.lab.command("a0", MULTIRAIL).unwrap();
        command.args(args).env("MULTIRAIL_KEYS", common::keys()).current_dir(&self.place.dir);
        command
    }

    /// Asserts that a host's clocks are what they are meant to be.
    fn assert_clocks(&self, host: &str, clocks: &Clocks) {
        let done = self.program(host, clocks, &["cat", "/proc/uptime"]).output().unwrap();
        let uptime_s: f64 = String::from_utf8_lossy(&done.stdout).split(' ').next().unwrap().parse().unwrap();
        assert!(uptime_s >= f64::from(clocks.monotonic_s), "{host}: {uptime_s} s");
        let done = self.program(host, clocks, &["date", "+%s"]).output().unwrap();
        let day_s: i64 = String::from_utf8_lossy(&done.stdout).trim().parse().unwrap();
        let off_s = day_s - now_s() - clocks.day_s;
        assert!(off_s.abs() < DAY_S, "{host}: {off_s} s");
    }

    /// Starts a server on a host, with the folder of an interrupted broadcast.
    fn serve(&mut self, host: &str, clocks: &Clocks) -> String {
        fs::create_dir_all(self.place.path(host).join(INTERRUPTED)).unwrap();
        fs::write(self.place.path(host).join(INTERRUPTED).join("0"), "half").unwrap();
        let listen = format!("{}:7717", self.lab.cluster_address(host).unwrap());
        let audit = format!("{host}.audit");
        let serve = ["--json", "serve", "--listen", &listen, "--root", host, "--token-file", "token"];
        let mut serve = self.multirail(host, clocks, &[&serve[..], &["--audit", &audit]].concat());
        let mut server = serve.stdout(Stdio::piped()).spawn().unwrap();
        let address = listening(&mut server);
        self.place.servers.push(server);
        address
    }

    /// Waits until a server's log has a request, and asserts that its time of day is so far ahead.
    fn assert_day(&self, host: &str, ahead_s: i64) {
        let until = Instant::now() + Duration::from_secs(20);
        let log = loop {
            let log = fs::read_to_string(self.place.path(&format!("{host}.audit"))).unwrap();
            if log.contains('\n') {
                break log;
            }
            assert!(Instant::now() < until, "{host} logs nothing");
            std::thread::sleep(Duration::from_millis(20));
        };
        let request: Value = serde_json::from_str(log.lines().next_back().unwrap()).unwrap();
        let year: i64 = request["time"].as_str().unwrap()[..4].parse().unwrap();
        let expected = 1970 + (now_s() + ahead_s) / (365 * DAY_S);
        assert!((year - expected).abs() <= 1, "{host}: {request}");
    }

    /// Waits until a host has begun to receive.
    fn wait_for_begin(&self, host: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        let has_begun = || {
            let mut names = fs::read_dir(self.place.path(host)).unwrap().map(|entry| entry.unwrap().file_name());
            names.any(|name| name != INTERRUPTED && name.to_string_lossy().ends_with(".multirail-part"))
        };
        while !has_begun() {
            assert!(Instant::now() < until, "{host} does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Ends a child when the test fails.
struct Running(Option<Child>);

impl Running {
    fn wait(mut self) -> std::process::Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One server's time is ten years ahead, another's a year behind, and that of a host that joins by
/// ticket five years ahead. During the broadcast, the one behind jumps ahead by twenty years.
#[test]
fn hosts_complete_whatever_time_their_clocks_show() {
    if let Some((requirement, why)) = lacks() {
        return skip(requirement, why);
    }
    let mut net = Net::up("differ");
    let ahead = Clocks { day_s: 3650 * DAY_S, monotonic_s: 10_000_000 };
    let behind = Clocks { day_s: -365 * DAY_S, monotonic_s: 0 };
    let joining = Clocks { day_s: 5 * 365 * DAY_S, monotonic_s: 3_000_000 };
    for (host, clocks) in [("a1", &ahead), ("b0", &behind), ("b1", &joining)] {
        net.assert_clocks(host, clocks);
    }
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * 7 + at / 1000) as u8).collect();
    fs::write(net.place.path("src"), &bytes).unwrap();
    let modified = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    File::options().append(true).open(net.place.path("src")).unwrap().set_modified(modified).unwrap();
    let hosts = [net.serve("a1", &ahead), net.serve("b0", &behind)].join(",");

    let bcast = ["--json", "bcast", "src", "--to", "src", "--hosts", &hosts, "--token-file", "token", "--ticket"];
    let mut root = net.root(&[&bcast[..], &["--seed-for", "5s"]].concat());
    let mut root = Running(Some(root.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()));
    let mut stdout = BufReader::new(root.0.as_mut().unwrap().stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let ticket: Value = serde_json::from_str(&line).unwrap();
    let fetch = ["fetch", ticket["ticket"].as_str().unwrap(), "--to", "b1", "--token-file", "token"];
    let mut fetch = net.multirail("b1", &joining, &fetch);
    let fetch = Running(Some(fetch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()));
    net.wait_for_begin("b0");
    assert!(!net.place.path("b0/src").exists(), "the jump comes too late");
    let jumped_s = 20 * 365 * DAY_S;
    net.set_day("b0", jumped_s);

    let fetched = fetch.wait();
    assert_eq!(fetched.status.code(), Some(0), "{}", stderr(&fetched));
    line.clear();
    stdout.read_line(&mut line).unwrap();
    let summary: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let done = root.wait();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_eq!((summary["complete"].as_u64(), summary["failed"].as_u64()), (Some(2), Some(0)), "{summary}");
    assert_eq!(summary["joined"][0]["complete"], true, "{summary}");
    for host in ["a1", "b0", "b1"] {
        let copy = net.place.path(host).join("src");
        assert!(fs::read(&copy).unwrap() == bytes, "{host}: other data");
        assert_eq!(fs::metadata(&copy).unwrap().modified().unwrap(), modified, "{host}");
    }
    for (host, ahead_s) in [("a1", ahead.day_s), ("b0", jumped_s)] {
        net.assert_day(host, ahead_s);
        assert!(net.place.path(host).join(INTERRUPTED).exists(), "{host} removed a young folder");
    }
}

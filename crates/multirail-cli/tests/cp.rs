//! `multirail cp` as a user runs it: exit codes, stdout and stderr.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");

/// The command, with keys of the tests' own.
fn multirail() -> Command {
    let mut command = Command::new(MULTIRAIL);
    command.env("MULTIRAIL_KEYS", concat!(env!("CARGO_TARGET_TMPDIR"), "/keys"));
    command
}

/// A server, the folder it serves, and another folder.
struct Served {
    dir: PathBuf,
    address: String,
    server: Running,
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves `root`; returns the address.
fn serve(root: &Path) -> (Running, String) {
    let mut server = multirail()
        .args(["--json", "serve", "--listen", "127.0.0.1:0", "--root"])
        .arg(root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    (Running(server), ready["listening"].as_str().unwrap().to_owned())
}

/// The names in `dir`, sorted; none if it does not exist.
fn names_if_any(dir: &str) -> Vec<String> {
    if Path::new(dir).exists() { names(dir) } else { Vec::new() }
}

/// The names in `dir`, sorted.
fn names(dir: &str) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl Served {
    fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("multirail-cp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("root")).unwrap();
        let (server, address) = serve(&dir.join("root"));
        Self { dir, address, server }
    }

    fn url(&self, path: &str) -> String {
        format!("mr://{}/{path}", self.address)
    }

    fn local(&self, path: &str) -> String {
        self.dir.join(path).to_str().unwrap().to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.0.kill();
        let _ = self.server.0.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn cp(args: &[&str]) -> Output {
    multirail().arg("cp").args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn there_and_back_in_json() {
    let served = Served::start("json");
    std::fs::write(served.local("a"), vec![7; 300_000]).unwrap();
    let up = cp(&["--json", &served.local("a"), &served.url("b")]);
    assert_eq!((up.status.code(), stderr(&up).as_str()), (Some(0), ""));
    let summary: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
    assert_eq!((summary["files"].as_u64(), summary["bytes"].as_u64()), (Some(1), Some(300_000)));
    assert!(summary["rate_mbit_s"].as_f64().unwrap() > 0.0);
    let rail = &summary["rails"][0];
    assert!(rail["local"].is_string() && rail["remote"].is_string() && rail["rtt_us"].is_u64());
    assert!(rail["bytes"].as_u64().unwrap() >= 300_000 && rail["share"] == 1.0);

    let down = cp(&[&served.url("b"), "--recursive", &served.local("c")]);
    assert_eq!(down.status.code(), Some(0), "{}", stderr(&down));
    assert!(String::from_utf8_lossy(&down.stdout).starts_with("1 file, 293.0 KiB in "), "{down:?}");
    assert_eq!(std::fs::read(served.local("c")).unwrap(), vec![7; 300_000]);
}

#[test]
fn a_failed_file_is_exit_code_1() {
    let served = Served::start("failed");
    std::fs::create_dir_all(served.local("tree")).unwrap();
    std::fs::write(served.local("tree/good"), "x").unwrap();
    let made = Command::new("mkfifo").arg(served.local("tree/pipe")).status().unwrap();
    assert!(made.success());
    let some = cp(&["-r", &served.local("tree"), &served.local("absent"), &served.url("")]);
    assert_eq!(some.status.code(), Some(1));
    assert!(stderr(&some).contains("error: this host could not read absent: No such file or directory\n"));
    assert!(stderr(&some).contains("skipped tree/pipe: a special file\n"), "{}", stderr(&some));
    assert!(String::from_utf8_lossy(&some.stdout).contains("1 skipped; 1 failed"), "{some:?}");
    assert!(PathBuf::from(served.local("root/tree/good")).exists());

    let json = cp(&["--json", &served.url("absent"), &served.local("")]);
    let summary: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let failed = &summary["failed"][0];
    assert_eq!((failed["path"].as_str(), failed["side"].as_str()), (Some("absent"), Some("server")));
    assert_eq!(failed["message"], "the server could not read absent: No such file or directory");
    assert_eq!(json.status.code(), Some(1));

    let refused = cp(&[&served.local("tree/good"), &served.url("../x")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).starts_with("error: the server refuses: ../x: `.` and `..` are not allowed"));
    let unreachable = cp(&[&served.local("tree/good"), "mr://127.0.0.1:9/x"]);
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(stderr(&unreachable).contains("cannot reach 127.0.0.1:9"), "{}", stderr(&unreachable));
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for (args, why) in [
        (&["a"][..], "SRC"),
        (&["a", "b"], "neither end is remote"),
        (&["mr://h/a", "mr://g/b"], "both remote"),
        (&["mr://h/a", "mr://g/b", "c"], "two hosts"),
        (&["a", "mr:/h/b"], "write mr://HOST"),
        (&["a", "mr://[::1/b"], "a bracket is not closed"),
        (&["a", "mr://h:x/b"], "x is not a port"),
        (&["--strategy", "best", "a", "mr://h/b"], "unknown strategy `best`"),
    ] {
        let output = cp(args);
        assert_eq!(output.status.code(), Some(2), "{args:?} {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?} {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

/// Writes a file of 24 MiB without holes.
fn write_big(path: &str) {
    let block: Vec<u8> = (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    std::fs::write(path, block.repeat(24)).unwrap();
}

/// Starts a copy that takes seconds, and waits until it has brought more than 1 MiB of a part in
/// `folder`.
fn begin(args: &[&str], folder: &str) -> Running {
    let limited = [&["--limit", "8m"], args].concat();
    let copy = multirail().arg("cp").args(limited).stderr(Stdio::piped()).spawn();
    let mut copy = Running(copy.unwrap());
    while part_bytes(folder) < 1 << 20 {
        assert!(copy.0.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    copy
}

/// The room that the parts in `folder` take on the disk.
fn part_bytes(folder: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let parts = names_if_any(folder).into_iter().filter(|name| name.ends_with(".multirail-part"));
    let stats = parts.flat_map(|name| Path::new(folder).join(name).metadata());
    stats.filter(std::fs::Metadata::is_file).map(|stat| stat.blocks() * 512).sum()
}

/// Runs the copy to its end, and checks that it continues a former one.
fn finish(args: &[&str]) {
    let again = cp(&[&["--json"], args].concat());
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let summary: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    let resumed_bytes = summary["resumed_bytes"].as_u64().unwrap();
    assert!((1 << 19..24 << 20).contains(&resumed_bytes), "{summary}");
}

#[test]
fn an_interrupted_copy_continues() {
    let served = Served::start("interrupted");
    write_big(&served.local("root/big"));
    let (from, folder) = (served.url("big"), served.local("copies"));
    std::fs::create_dir(&folder).unwrap();
    let args = [from.as_str(), folder.as_str()];
    let mut copy = begin(&args, &folder);
    // SAFETY: the process is our child, and not reaped yet.
    assert_eq!(unsafe { libc::kill(copy.0.id() as i32, libc::SIGINT) }, 0);
    let mut said = String::new();
    std::io::Read::read_to_string(copy.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(copy.0.wait().unwrap().code(), Some(1));
    assert!(said.starts_with("error: interrupted"), "{said}");
    assert!(!Path::new(&folder).join("big").exists());
    finish(&args);
    assert_eq!(names(&folder), ["big"]);
}

/// A server that starts leaves alone what can be continued, and the same copy continues it.
#[test]
fn a_copy_to_a_killed_server_continues() {
    let mut served = Served::start("killed");
    let folder = served.local("root/a/b");
    std::fs::create_dir_all(&folder).unwrap();
    write_big(&served.local("big"));
    let copy = begin(&[&served.local("big"), &served.url("a/b/big")], &folder);
    served.server.0.kill().unwrap();
    served.server.0.wait().unwrap();
    drop(copy);
    std::fs::write(Path::new(&folder).join(".small.0123456789abcdef.multirail-part"), "half").unwrap();
    let (_server, address) = serve(Path::new(&served.local("root")));
    assert_eq!(names(&folder).len(), 1, "the part that can be continued");
    finish(&[&served.local("big"), &format!("mr://{address}/a/b/big")]);
    assert_eq!(names(&folder), ["big"]);
    assert_eq!(names(&served.local("root")), ["a"], "the notes of the killed server are gone");
}

/// A client does not wait for a server that was killed as for a network that is down.
#[test]
fn a_client_of_a_killed_server_ends_soon() {
    let mut served = Served::start("dead-server");
    let (copies, arrived) = (served.local("copies"), served.local("root/arrived"));
    write_big(&served.local("root/big"));
    for folder in [&copies, &arrived] {
        std::fs::create_dir(folder).unwrap();
    }
    let copies = [
        begin(&[&served.url("big"), &copies], &copies),
        begin(&[&served.local("root/big"), &served.url("arrived/")], &arrived),
    ];
    served.server.0.kill().unwrap();
    served.server.0.wait().unwrap();
    for mut copy in copies {
        let mut said = String::new();
        std::io::Read::read_to_string(copy.0.stderr.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(copy.0.wait().unwrap().code(), Some(1));
        assert!(said.contains("its host is up and refuses connections"), "{said}");
    }
}

/// The server holds the part of the killed client until the next one asks for it.
#[test]
fn the_copy_of_a_killed_client_continues() {
    let served = Served::start("killed-client");
    let (copies, arrived) = (served.local("copies"), served.local("root/arrived"));
    for folder in [&copies, &arrived] {
        std::fs::create_dir(folder).unwrap();
    }
    write_big(&served.local("root/big"));
    for (from, to, folder) in
        [(served.url("big"), copies.clone(), &copies), (served.local("root/big"), served.url("arrived/"), &arrived)]
    {
        drop(begin(&[&from, &to], folder));
        finish(&[&from, &to]);
        assert_eq!(names(folder), ["big"]);
        // A changed source starts over.
        std::fs::remove_file(Path::new(folder).join("big")).unwrap();
        drop(begin(&[&from, &to], folder));
        std::fs::write(served.local("root/big"), "short").unwrap();
        let again = cp(&[&from, &to]);
        assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
        assert_eq!(std::fs::read(Path::new(folder).join("big")).unwrap(), b"short");
        write_big(&served.local("root/big"));
    }
}

/// An interrupted copy is repeated with the same command.
#[test]
fn a_repeated_copy_goes_to_the_same_place() {
    let served = Served::start("repeated");
    std::fs::create_dir_all(served.local("src/below")).unwrap();
    std::fs::write(served.local("src/below/small"), "x").unwrap();
    write_big(&served.local("src/big"));
    for (source, arrived) in [("src", "T/src"), ("src/", "U")] {
        let arrived = served.local(&format!("root/{arrived}"));
        let args = ["-r", &served.local(source), &served.url(&source.replace("src/", "U").replace("src", "T"))];
        drop(begin(&args, &arrived));
        finish(&args);
        let again = cp(&args);
        assert!(String::from_utf8_lossy(&again.stdout).contains("; 2 unchanged"), "{again:?}");
        assert_eq!(names(&arrived), ["below", "big"]);
    }
    assert_eq!(names(&served.local("root/T")), ["src"]);
}

#[test]
fn a_dry_run_prints_what_would_be_done() {
    let served = Served::start("dry");
    for folder in ["tree", "root/T/tree"] {
        std::fs::create_dir_all(served.local(folder)).unwrap();
    }
    for file in ["tree/new", "tree/left.out", "tree/in.out", "root/T/tree/old"] {
        std::fs::write(served.local(file), "x").unwrap();
    }
    let rules = ["--include", "in.*", "--exclude", "*.out"];
    let args = ["-rn", "--delete", &served.local("tree"), &served.url("T")];
    let dry = cp(&[&rules[..], &args].concat());
    assert_eq!(dry.status.code(), Some(0), "{}", stderr(&dry));
    let out = String::from_utf8(dry.stdout).unwrap();
    let mut lines: Vec<&str> = out.lines().filter(|line| !line.starts_with("0 files")).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["delete tree/old", "send tree/in.out", "send tree/new"]);
    assert_eq!(names(&served.local("root/T/tree")), ["old"]);
    let json = cp(&[&["--json"], &rules[..], &args].concat());
    let first = String::from_utf8(json.stdout).unwrap().lines().next().unwrap().to_owned();
    let row: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert!(row["would"] == "send" && row["path"].as_str().unwrap().starts_with("tree/"), "{row}");
}

#[test]
fn help_has_an_example() {
    let help = cp(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("multirail cp -r results mr://storage1/runs/"));
}

//! `multirail cp` as its user meets it: exit codes, what is on stdout and what on stderr.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");

/// A served folder, one beside it, and the server.
struct Served {
    dir: PathBuf,
    address: String,
    server: Child,
}

impl Served {
    fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("multirail-cp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("root")).unwrap();
        let mut server = Command::new(MULTIRAIL)
            .args(["--json", "serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(dir.join("root"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = ready["listening"].as_str().unwrap().to_owned();
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
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn cp(args: &[&str]) -> Output {
    Command::new(MULTIRAIL).arg("cp").args(args).output().unwrap()
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
    std::os::unix::fs::symlink("good", served.local("tree/link")).unwrap();
    let some = cp(&["-r", &served.local("tree"), &served.local("absent"), &served.url("")]);
    assert_eq!(some.status.code(), Some(1));
    assert!(stderr(&some).contains("error: this host could not read absent: No such file or directory\n"));
    assert!(stderr(&some).contains("skipped tree/link: a symlink\n"), "{}", stderr(&some));
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
    let nobody = cp(&[&served.local("tree/good"), "mr://127.0.0.1:9/x"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("cannot reach 127.0.0.1:9"), "{}", stderr(&nobody));
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
        (&["--strategy", "best", "a", "mr://h/b"], "no strategy `best`"),
    ] {
        let output = cp(args);
        assert_eq!(output.status.code(), Some(2), "{args:?} {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?} {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_interrupted_copy_cleans_up() {
    let served = Served::start("interrupted");
    std::fs::File::create(served.local("root/big")).unwrap().set_len(4 << 30).unwrap();
    let mut copy = Command::new(MULTIRAIL);
    let mut copy = copy.args(["cp", &served.url("big"), &served.local("copy")]).stderr(Stdio::piped()).spawn().unwrap();
    let parts = || {
        let names = std::fs::read_dir(&served.dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|n| n.ends_with(".multirail-part")).count()
    };
    while parts() == 0 {
        assert!(copy.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // SAFETY: the process is our child, and not reaped yet.
    assert_eq!(unsafe { libc::kill(copy.id() as i32, libc::SIGINT) }, 0);
    let output = copy.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: interrupted"), "{}", stderr(&output));
    assert_eq!(parts(), 0);
    assert!(!PathBuf::from(served.local("copy")).exists());
}

#[test]
fn help_has_an_example() {
    let help = cp(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("multirail cp -r results/ mr://storage1/runs/"));
}

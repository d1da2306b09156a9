//! `multirail pipeline` as its user meets it: real servers, real programs, and what is left of them afterwards.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");

/// A folder to work in, and servers below it, all of which go.
struct Place {
    dir: PathBuf,
    servers: Vec<Child>,
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pipeline-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("token"), "a token for tests").unwrap();
        Self { dir, servers: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Starts a server for the folder `name`; its address.
    fn serve(&mut self, name: &str, options: &[&str]) -> String {
        fs::create_dir_all(self.path(name)).unwrap();
        let mut server = Command::new(MULTIRAIL)
            .args(["--json", "serve", "--listen", "127.0.0.1:0", "--root", name, "--token-file", "token"])
            .args(options)
            .current_dir(&self.dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.servers.push(server);
        let ready: Value = serde_json::from_str(&line).unwrap();
        ready["listening"].as_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(MULTIRAIL);
        command.args(args).args(["--token-file", "token"]).current_dir(&self.dir);
        command
    }

    fn run(&self, file: &str, options: &[&str]) -> Output {
        self.command(&[&["--json", "pipeline", "run", file], options].concat()).output().unwrap()
    }

    /// What a run of this description says when it fails.
    fn failure(&self, description: &str, code: i32, options: &[&str]) -> String {
        self.write("bad.toml", description);
        let failed = self.run("bad.toml", options);
        let told = stderr(&failed);
        assert_eq!(failed.status.code(), Some(code), "{told}");
        serde_json::from_str::<Value>(told.lines().last().unwrap_or_default()).unwrap()["error"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Processes that wrote their numbers into a file, one a line.
    fn pids(&self, name: &str, count: usize) -> Vec<String> {
        for _ in 0..2000 {
            let pids = fs::read_to_string(self.path(name)).unwrap_or_default();
            if pids.lines().count() >= count {
                return pids.lines().map(str::to_owned).collect();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{count} programs did not start");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until a process is gone; a zombie runs no more.
fn wait_gone(pid: &str) {
    for _ in 0..2000 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("process {pid} is still there");
}

/// Adds 1 to every byte of every buffer.
const PLUS_ONE: &str = r#"
import struct, sys
plus = bytes((i + 1) % 256 for i in range(256))
while prefix := sys.stdin.buffer.read(4):
    body = sys.stdin.buffer.read(struct.unpack("<I", prefix)[0])
    sys.stdout.buffer.write(prefix + body.translate(plus))
    sys.stdout.buffer.flush()
"#;

/// generate -> a program -> write.
fn through(program: &str, more: &str) -> String {
    format!(
        "[[filter]]\nname = \"source\"\nuse = \"generate\"\nbytes = \"3m\"\n\n[[filter]]\nname = \"work\"\nprogram = {program}\n{more}\n\n\
         [[filter]]\nname = \"sink\"\nuse = \"write\"\nfile = \"out\"\n\n[[stream]]\nfrom = \"source\"\nto = \"work\"\n\n\
         [[stream]]\nfrom = \"work\"\nto = \"sink\"\n\n[run]\nchunk = \"16k\"\n"
    )
}

fn script(text: &str) -> String {
    format!("[\"sh\", \"-c\", {}]", serde_json::to_string(text).unwrap())
}

#[test]
fn programs_on_three_hosts_make_the_same_as_one_here() {
    let mut place = Place::new("three");
    let hosts: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let address = place.serve(name, &["--allow-programs"]);
            fs::write(place.path(name).join("plus.py"), PLUS_ONE).unwrap();
            format!("{name}={address}")
        })
        .collect();
    place.write("plus.py", PLUS_ONE);
    let wanted: Vec<u8> = (0..3 << 20).map(|i| ((i % 251) + 1) as u8).collect();
    for more in
        ["", "copies = 3\nhosts = [\"a\", \"b\", \"c\"]", "copies = 3\nhosts = [\"local\", \"b\"]\nstateless = true"]
    {
        place.write("pipe.toml", &through("[\"python3\", \"plus.py\"]", more));
        let done = place.run("pipe.toml", &["--units", "2", "--hosts", &hosts.join(",")]);
        assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""), "{more}");
        assert!(fs::read(place.path("out")).unwrap() == wanted, "{more}");
        let units: Vec<Value> = rows(&done).into_iter().filter(|row| row.get("unit").is_some()).collect();
        assert_eq!(units.len(), 2);
        for unit in units {
            assert_eq!(
                (&unit["error"], &unit["filters"][1]["bytes_in"]),
                (&Value::Null, &Value::from(3 << 20)),
                "{unit}"
            );
            assert_eq!(
                (&unit["filters"][1]["buffers_out"], &unit["filters"][2]["bytes_in"]),
                (&Value::from(192), &Value::from(3 << 20))
            );
        }
        fs::remove_file(place.path("out")).unwrap();
    }
    // Source and sink elsewhere, too, by the addresses of the file, for people.
    let mut description = through("[\"python3\", \"plus.py\"]", "copies = 2\nhosts = [\"a\", \"b\"]");
    description = description.replace("use = \"generate\"", "use = \"generate\"\nhosts = [\"b\"]");
    description = description.replace("use = \"write\"", "use = \"write\"\nhosts = [\"c\"]") + "[hosts]\n";
    hosts.iter().for_each(|host| description += &(host.replacen('=', " = \"", 1) + "\"\n"));
    place.write("away.toml", &description);
    let done = place.command(&["pipeline", "run", "away.toml"]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(fs::read(place.path("c/out")).unwrap() == wanted);
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("unit 1 of 1: "));
}

#[test]
fn a_plan_shows_where_copies_are_and_starts_nothing() {
    let mut place = Place::new("plan");
    let address = place.serve("a", &[]);
    let description =
        through("[\"no-such-program\"]", "copies = 3\nhosts = [\"a\", \"local\"]").replace("chunk = \"16k\"", "");
    place.write("plan.toml", &description);
    let hosts = format!("a={address}");
    let args = ["--json", "pipeline", "plan", "plan.toml", "--hosts", &hosts];
    let plan = place.command(&args).output().unwrap();
    assert_eq!((plan.status.code(), stderr(&plan).as_str()), (Some(0), ""));
    let plan = &rows(&plan)[0];
    assert_eq!(plan["filters"][1]["hosts"], serde_json::json!(["a", "local", "a"]));
    assert_eq!((&plan["filters"][1]["kind"], &plan["chunk_by"]), (&Value::from("program"), &Value::from("default")));
    assert_eq!(
        (&plan["streams"][0]["edges"], &plan["streams"][0]["edges_between_hosts"]),
        (&Value::from(3), &Value::from(2))
    );
    // With a guarantee it measures.
    place.write("plan.toml", &(description + "[guarantee]\nlatency_us = 1e7\nupdate_bytes = \"1m\"\n"));
    let plan = place.command(&args).output().unwrap();
    assert_eq!(plan.status.code(), Some(0), "{}", stderr(&plan));
    let plan = &rows(&plan)[0];
    assert_eq!((&plan["chunk_by"], &plan["planned"]["hosts"][0]), (&Value::from("guarantee"), &Value::from("a")));
    assert_eq!(plan["chunk_bytes"], plan["planned"]["plan"]["chunk_bytes"]);
    assert!(plan["planned"]["points"].as_array().unwrap().len() > 5);
    let text = place.command(&args[1..]).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("source -> work: demand-driven, window 4, 3 edges, 2 of them between hosts"), "{text}");
    assert!(text.contains(" us, ") && text.contains(" full updates a second"), "{text}");
}

#[test]
fn a_description_that_is_wrong_is_exit_code_2_and_names_the_line() {
    let place = Place::new("wrong");
    let good = through("[\"cat\"]", "");
    for (description, parts) in [
        (
            good.clone() + "[[stream]]\nfrom = \"sink\"\nto = \"source\"\n",
            ["bad.toml: line ", "the streams make a circle: "],
        ),
        (
            good.replace("\"generate\"", "\"genarate\""),
            ["line 1: ", "kind \"genarate\", which is unknown; there are: compute, "],
        ),
        (good.replace("program = [\"cat\"]", "program = [\"cat\"]\ncopies = 0"), ["line 6: ", "\"work\" has 0 copies"]),
        (
            good.replace("program = [\"cat\"]", "program = [\"cat\"]\nhosts = [\"x\"]"),
            ["line 6: ", "host \"x\", which is not in [hosts]"],
        ),
        (good.replace("[run]", "[rum]"), ["line ", "rum"]),
        ("[[filter]".to_owned(), ["line 1: ", ""]),
    ] {
        let told = place.failure(&description, 2, &[]);
        assert!(parts.iter().all(|part| told.contains(part)), "{parts:?}: {told}");
    }
    let missing = place.run("no-such-file.toml", &[]);
    assert_eq!(missing.status.code(), Some(1));
    for (option, value) in
        [("--hosts", "a"), ("--chunk", "0"), ("--transport", "pigeon"), ("--units", "0"), ("--stall", "-1")]
    {
        let wrong = place.run("bad.toml", &[&format!("{option}={value}")]);
        assert_eq!(wrong.status.code(), Some(2), "{option}: {}", stderr(&wrong));
    }
}

#[test]
fn what_a_program_does_wrong_is_told_with_filter_copy_host_and_cause() {
    let mut place = Place::new("programs");
    let hosts = format!("a={}", place.serve("a", &["--allow-programs"]));
    for (text, more, cause) in [
        ("echo no ink >&2; exit 7", "", "it failed: exit status: 7; its stderr ends:\n  no ink"),
        ("kill -ABRT $$", "", "it failed: signal: 6"),
        (
            "cat >/dev/null; printf '\\144\\000\\000\\000short'",
            "",
            "it ended in the middle of a buffer, after 9 of 104 bytes",
        ),
        ("printf '\\377\\377\\377\\377'; exec cat", "", "it wrote the length 4294967295 before a buffer"),
        ("exec sleep 1000", "silence_s = 0.5", "it has read nothing for 0.5 s, and a buffer waits"),
        ("exec <&-; exec sleep 1000", "", "it closed its input before its input ended"),
        ("head -c 20000 >/dev/null", "", "it ended, with exit code 0, before its input did"),
    ] {
        for (host, more) in [("local", more.to_owned()), ("a", format!("{more}\nhosts = [\"a\"]"))] {
            let text = format!("echo $$ >> '{}'; {text}", place.path("pids").display());
            let told = place.failure(&through(&script(&text), &more), 1, &["--hosts", &hosts]);
            let parts =
                ["bad.toml: unit of work 1: ", &format!("copy 0 of filter \"work\" on host {host} failed: "), cause];
            assert!(parts.iter().all(|part| told.contains(part)), "{parts:?}: {told}");
            place.pids("pids", 1).iter().for_each(|pid| wait_gone(pid));
            fs::remove_file(place.path("pids")).unwrap();
            assert!(!place.path("out").exists());
        }
    }
    let told = place.failure(&through("[\"no-such-program\"]", ""), 1, &[]);
    assert!(
        told.contains("copy 0 of filter \"work\" on host local failed: cannot start \"no-such-program\""),
        "{told}"
    );
}

#[test]
fn a_host_that_is_not_as_it_should_be_is_named() {
    let mut place = Place::new("hosts");
    let cautious = place.serve("cautious", &[]);
    let on = |place: &Place, kind: &str, address: &str| {
        place.failure(&through(kind, "hosts = [\"h\"]"), 1, &["--hosts", &format!("h={address}")])
    };
    let told = on(&place, "[\"cat\"]", &cautious);
    assert!(told.contains("host h cannot take part: ") && told.contains("--allow-programs"), "{told}");
    // Nobody there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let told = on(&place, "[\"cat\"]", &nobody);
    assert!(told.contains(&format!("host h cannot take part: cannot reach {nobody}")), "{told}");
    // Somebody who says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = on(&place, "[\"cat\"]", &silent.local_addr().unwrap().to_string());
    assert!(told.contains("host h cannot take part: "), "{told}");
}

#[test]
fn programs_are_only_for_those_who_need_a_token() {
    let place = Place::new("no-token");
    for options in [&["--allow-programs"][..], &["--allow-programs", "--insecure-no-token"]] {
        let refused = Command::new(MULTIRAIL)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .current_dir(&place.dir)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("--token-file"), "{}", stderr(&refused));
    }
}

/// Two copies, one of them elsewhere, of a program that has started another one; they ignore what can be ignored, and never read.
fn stuck(place: &Place) -> String {
    let text = format!(
        "trap '' TERM HUP INT; sleep 1000 & echo $! >> '{0}'; echo $$ >> '{0}'; wait",
        place.path("pids").display()
    );
    through(&script(&text), "copies = 2\nsilence_s = 0\nhosts = [\"local\", \"a\"]")
}

#[test]
fn a_stall_is_given_up_with_the_names_of_those_who_hold_it_up() {
    let mut place = Place::new("stall");
    let hosts = format!("a={}", place.serve("a", &["--allow-programs"]));
    let told = place.failure(&stuck(&place), 1, &["--hosts", &hosts, "--stall", "1.5"]);
    for part in [
        "no buffer has moved for 1.5 s",
        "copy 0 of filter \"work\" on host local",
        "copy 1 of filter \"work\" on host a",
    ] {
        assert!(told.contains(part), "{told}");
    }
    place.pids("pids", 4).iter().for_each(|pid| wait_gone(pid));
}

#[test]
fn nothing_is_left_when_it_is_interrupted_or_killed() {
    let mut place = Place::new("ends");
    let hosts = format!("a={}", place.serve("a", &["--allow-programs"]));
    place.write("stuck.toml", &stuck(&place));
    for (signal, code) in [("-INT", Some(1)), ("-KILL", None)] {
        let mut run = place
            .command(&["pipeline", "run", "stuck.toml", "--hosts", &hosts])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pids = place.pids("pids", 4);
        let killed = Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(run.wait().unwrap().code(), code);
        pids.iter().for_each(|pid| wait_gone(pid));
        fs::remove_file(place.path("pids")).unwrap();
    }
    // The server's death ends its programs, too, and the run with them.
    let mut run =
        place.command(&["pipeline", "run", "stuck.toml", "--hosts", &hosts]).stderr(Stdio::piped()).spawn().unwrap();
    let pids = place.pids("pids", 4);
    let mut server = place.servers.pop().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let mut told = String::new();
    BufReader::new(run.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1));
    assert!(told.contains("host a"), "{told}");
    pids.iter().for_each(|pid| wait_gone(pid));
}

//! `multirail pipeline` as a user runs it, with real servers and programs, and its clean-up.

mod common;

use common::{Place, listening, stderr, unreachable};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

impl Place {
    /// A folder whose servers require a token.
    fn with_token(name: &str) -> Self {
        let place = Self::new(name);
        place.token();
        place
    }

    /// Starts a server and returns its address.
    fn host(&mut self, name: &str, options: &[&str]) -> String {
        self.serve(name, &[&["--token-file", "token"], options].concat())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.multirail(args);
        command.args(["--token-file", "token"]);
        command
    }

    /// Runs `run` or `plan` with servers that it starts over ssh.
    fn over_ssh(&self, what: &str, file: &str, hosts: &str) -> Command {
        let ssh = self.fake_ssh();
        self.multirail(&["--json", "pipeline", what, file, "--hosts", hosts, &ssh, "--ssh-root", "far"])
    }

    /// Waits until all ssh sessions have ended by themselves, and returns their number.
    fn ended_over_ssh(&self) -> usize {
        let mut log = String::new();
        let count = |log: &str, what: &str| log.lines().filter(|line| line.starts_with(what)).count();
        for _ in 0..2000 {
            log = self.ssh_log();
            if count(&log, "ended 0") == count(&log, "began ") {
                return count(&log, "began ");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("servers do not end: {log}");
    }

    fn run(&self, file: &str, options: &[&str]) -> Output {
        self.command(&[&["--json", "pipeline", "run", file], options].concat()).output().unwrap()
    }

    /// The error of a run of this description.
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

    /// The processes that wrote their ids to a file, one on each line.
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

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until a process has ended. A zombie counts as ended.
fn wait_gone(pid: &str) {
    for _ in 0..2000 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("process {pid} still runs");
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

/// A pipeline of generate, a program, and write.
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
fn programs_on_three_hosts_give_the_result_of_one_host() {
    let mut place = Place::with_token("three");
    let hosts: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let address = place.host(name, &["--allow-programs"]);
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
    // Source and sink are on other hosts, too, with the addresses of the file, and text output.
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
    let mut place = Place::with_token("plan");
    let address = place.host("a", &[]);
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
    // With a guarantee, `plan` measures.
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
fn an_invalid_description_is_exit_code_2_and_names_the_line() {
    let place = Place::with_token("wrong");
    let good = through("[\"cat\"]", "");
    for (description, parts) in [
        (
            good.clone() + "[[stream]]\nfrom = \"sink\"\nto = \"source\"\n",
            ["bad.toml: line ", "the streams form a cycle: "],
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
fn a_program_failure_names_filter_copy_host_and_cause() {
    let mut place = Place::with_token("programs");
    let hosts = format!("a={}", place.host("a", &["--allow-programs"]));
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
fn a_host_that_cannot_take_part_is_named() {
    let mut place = Place::with_token("hosts");
    let cautious = place.host("cautious", &[]);
    let on = |place: &Place, kind: &str, address: &str| {
        place.failure(&through(kind, "hosts = [\"h\"]"), 1, &["--hosts", &format!("h={address}")])
    };
    let told = on(&place, "[\"cat\"]", &cautious);
    assert!(told.contains("host h cannot take part: ") && told.contains("--allow-programs"), "{told}");
    // Nothing listens there.
    let unreachable = unreachable();
    let told = on(&place, "[\"cat\"]", &unreachable);
    assert!(told.contains(&format!("host h cannot take part: cannot reach {unreachable}")), "{told}");
    // A listener that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = on(&place, "[\"cat\"]", &silent.local_addr().unwrap().to_string());
    assert!(told.contains("host h cannot take part: "), "{told}");
}

/// Two copies, one of them on another host, of a program that starts another one. Both ignore all
/// signals they can and never read.
fn stuck(place: &Place) -> String {
    let text = format!(
        "trap '' TERM HUP INT; sleep 1000 & echo $! >> '{0}'; echo $$ >> '{0}'; wait",
        place.path("pids").display()
    );
    through(&script(&text), "copies = 2\nsilence_s = 0\nhosts = [\"local\", \"a\"]")
}

#[test]
fn a_stalled_run_ends_and_names_the_stalled_copies() {
    let mut place = Place::with_token("stall");
    let hosts = format!("a={}", place.host("a", &["--allow-programs"]));
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
fn an_interrupted_or_killed_run_leaves_nothing_behind() {
    let mut place = Place::with_token("ends");
    let hosts = format!("a={}", place.host("a", &["--allow-programs"]));
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
    // When the server is killed, its programs and the run end, too.
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

#[test]
fn ssh_starts_servers_on_hosts_with_filters_and_they_end_with_the_run() {
    let place = Place::with_token("ssh");
    fs::create_dir_all(place.path("far")).unwrap();
    fs::write(place.path("far/plus.py"), PLUS_ONE).unwrap();
    let hosts = "a=127.0.0.2,b=127.0.0.3,closed=127.0.0.9";
    let description = through("[\"python3\", \"plus.py\"]", "copies = 2\nhosts = [\"a\", \"b\"]");
    place.write("pipe.toml", &description);
    let done = place.over_ssh("run", "pipe.toml", hosts).output().unwrap();
    assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""));
    let wanted: Vec<u8> = (0..3 << 20).map(|i| ((i % 251) + 1) as u8).collect();
    assert!(fs::read(place.path("out")).unwrap() == wanted);
    let log = place.ssh_log();
    assert_eq!(log.matches("ended 0").count(), 2, "they ended with the run: {log}");
    assert_eq!(place.ended_over_ssh(), 2, "a host without filters has no server: {log}");
    let longest = log.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap();
    assert!(longest < 32, "no token on a command line: {log}");

    // A plan without a measurement starts no servers; one with a measurement ends its servers.
    let plan = place.over_ssh("plan", "pipe.toml", hosts).output().unwrap();
    assert_eq!((plan.status.code(), place.ended_over_ssh()), (Some(0), 2), "{}", stderr(&plan));
    let guarantee =
        description.replace("chunk = \"16k\"", "") + "[guarantee]\nlatency_us = 1e7\nupdate_bytes = \"1m\"\n";
    place.write("plan.toml", &guarantee);
    let plan = place.over_ssh("plan", "plan.toml", hosts).output().unwrap();
    assert_eq!((plan.status.code(), place.ended_over_ssh()), (Some(0), 4), "{}", stderr(&plan));
    assert_eq!(rows(&plan)[0]["planned"]["hosts"][0], "a");

    // If one host cannot be reached, the servers of the others end.
    place.write("closed.toml", &description.replace("\"b\"", "\"closed\""));
    fs::remove_file(place.path("log")).unwrap();
    let failed = place.over_ssh("run", "closed.toml", hosts).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let why = "host closed: starting a server over ssh failed: Permission denied (publickey).";
    assert!(stderr(&failed).contains(why), "{}", stderr(&failed));
    assert!(place.ssh_log().contains("ended 0"), "{}", place.ssh_log());

    let wrong = place.over_ssh("run", "pipe.toml", "a=-oProxyCommand=x,b=b").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("host a: a name has letters"), "{}", stderr(&wrong));
}

#[test]
fn servers_over_ssh_end_when_the_run_fails_is_interrupted_or_killed() {
    let place = Place::with_token("ssh-ends");
    fs::create_dir_all(place.path("far")).unwrap();
    place.write("fails.toml", &through(&script("exit 7"), "hosts = [\"a\"]"));
    let failed = place.over_ssh("run", "fails.toml", "a=127.0.0.2").output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("on host a failed: it failed: exit status: 7"), "{}", stderr(&failed));
    assert_eq!(place.ended_over_ssh(), 1);
    place.write("stuck.toml", &stuck(&place));
    for (signal, code) in [("-INT", Some(1)), ("-KILL", None)] {
        let mut run = place.over_ssh("run", "stuck.toml", "a=127.0.0.2").stderr(Stdio::piped()).spawn().unwrap();
        let pids = place.pids("pids", 4);
        let before = place.ssh_log().matches("ended 0").count();
        let killed = Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(run.wait().unwrap().code(), code);
        pids.iter().for_each(|pid| wait_gone(pid));
        assert_eq!(place.ended_over_ssh(), before + 1);
        fs::remove_file(place.path("pids")).unwrap();
    }
}

#[test]
fn a_program_inherits_a_few_variables_of_the_server() {
    let mut place = Place::with_token("environment");
    fs::create_dir(place.path("one")).unwrap();
    let serve = ["--json", "serve", "--listen", "127.0.0.1:0", "--root", "one", "--allow-programs"];
    let mut serve = place.command(&serve);
    serve.env("SECRET", "of the server").env("TZ", "Asia/Tokyo").env("LANG", "C.UTF-8").stdout(Stdio::piped());
    let mut server = serve.spawn().unwrap();
    let one = listening(&mut server);
    place.servers.push(server);
    let work = "
[[filter]]
name = \"work\"
program = [\"sh\", \"-c\", \"cat >/dev/null; tr '\\\\0' '\\\\n' </proc/$$/environ >variables\"]
env = { LANG = \"C\", NAMED = \"a b=c\", MULTIRAIL_COPY = \"9\" }
hosts = [\"one\"]
";
    let generate = "[[filter]]\nname = \"make\"\nuse = \"generate\"\nbytes = 1\n";
    let stream = "[[stream]]\nfrom = \"make\"\nto = \"work\"\n";
    place.write("env.toml", &[generate, work, stream].concat());
    let run = place.run("env.toml", &["--hosts", &format!("one={one}")]);
    assert!(run.status.success(), "{}", stderr(&run));
    let variables = fs::read_to_string(place.path("one/variables")).unwrap();
    for expected in ["TZ=Asia/Tokyo", "LANG=C", "NAMED=a b=c", "MULTIRAIL_COPY=0", "MULTIRAIL_FILTER=work"] {
        assert!(variables.lines().any(|line| line == expected), "{expected}: {variables}");
    }
    let inherited = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
    for line in variables.lines() {
        let name = line.split('=').next().unwrap_or_default();
        assert!(inherited.contains(&name) || name == "NAMED" || name.starts_with("MULTIRAIL_"), "{line}: {variables}");
    }
}

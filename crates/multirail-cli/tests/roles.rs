//! What clients may do by the options of their keys, through a server.

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::{Place, stderr};
use multirail::{Config, Identity, KnownHosts, RateLimit, Session, files};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A server of the folder `root`, and clients with keys of their own.
struct Served {
    place: Place,
    address: String,
}

impl Served {
    /// Each client has its options; none are empty.
    fn start(name: &str, clients: &[(&str, &str)], options: &[&str]) -> Self {
        let mut place = Place::new(name);
        let key = |name: &str| {
            let shown = place.multirail(&["id", "--keys", name]).output().unwrap();
            assert!(shown.status.success(), "{}", stderr(&shown));
            String::from_utf8(shown.stdout).unwrap().trim().to_owned()
        };
        let server = key("server");
        let mut lines = String::new();
        for (client, options) in clients {
            lines += format!("{options} {} {client} at work\n", key(client)).trim_start();
            place.write(&format!("{client}/known_hosts"), &format!("127.0.0.1 {server}\n"));
        }
        place.write("server/authorized_keys", &lines);
        let options = [&["--keys", "server", "--audit", "audit"], options].concat();
        let address = place.serve("root", &options);
        Self { place, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        self.place.write(name, text);
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn run(&self, client: &str, args: &[&str]) -> Output {
        self.place.multirail(&[args, &["--keys", client]].concat()).output().unwrap()
    }

    fn put(&self, client: &str, options: &[&str], from: &str, to: &str) -> Output {
        let to = format!("mr://{}/{to}", self.address);
        self.run(client, &[&["cp", "-r"], options, &[from, &to]].concat())
    }

    fn get(&self, client: &str, from: &str, to: &str) -> Output {
        let from = format!("mr://{}/{from}", self.address);
        self.run(client, &["cp", "-r", &from, to])
    }
}

fn done(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

fn refused(output: &Output, why: &str) {
    let told = stderr(output) + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && told.contains(why), "{why}: {told}");
}

#[test]
fn a_key_that_may_read_cannot_write_or_delete() {
    let served = Served::start("ro", &[("reader", "ro"), ("owner", "")], &[]);
    served.write("root/there", "content");
    served.write("new/file", "new");
    done(&served.get("reader", "there", "got"));
    assert_eq!(served.read("got"), "content");
    for options in [&[][..], &["--delete"], &["--dry-run"]] {
        refused(&served.put("reader", options, "new/", ""), "the server lets this key read and not write");
    }
    let hosts = served.address.clone();
    let sent = served.run("reader", &["bcast", "-r", "new", "--to", "sent", "--hosts", &hosts]);
    refused(&sent, "the server lets this key read and not write");
    assert_eq!(fs::read_dir(served.path("root")).unwrap().count(), 1);
    done(&served.put("owner", &["--delete"], "new/", ""));
    assert!(served.path("root/file").exists() && !served.path("root/there").exists());
    let audit = served.read("audit");
    assert!(audit.contains(r#""name":"reader at work""#) && audit.contains(r#""result":"refused""#), "{audit}");
}

#[test]
fn a_key_that_may_write_learns_nothing_of_what_is_there() {
    let served = Served::start("wo", &[("sensor", "wo")], &[]);
    served.write("values/day", "content");
    symlink("day", served.path("values/latest")).unwrap();
    done(&served.put("sensor", &[], "values/", ""));
    assert_eq!(served.read("root/day"), "content");
    refused(&served.get("sensor", "day", "got"), "the server lets this key write and not read");
    refused(&served.get("sensor", "", "got"), "the server lets this key write and not read");
    for options in ["--delete", "--dry-run"] {
        refused(&served.put("sensor", &[options], "values/", ""), "the server lets this key write and not read");
    }
    // It sends everything again: "unchanged" would tell that the same file is there.
    let again = served.put("sensor", &["--json"], "values/", "");
    done(&again);
    let report: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&report["unchanged"], &report["files"]), (&0.into(), &1.into()), "{report}");
    // A comparison of contents would tell a hash.
    let again = served.put("sensor", &["--json", "--checksum"], "values/", "");
    let report: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&report["unchanged"], &report["files"]), (&0.into(), &1.into()), "{report}");
    // A host offers the pieces that it has to everyone in a broadcast.
    let hosts = served.address.clone();
    let sent = served.run("sensor", &["bcast", "-r", "values", "--to", "sent", "--hosts", &hosts]);
    refused(&sent, "the server lets this key write and not read");
}

#[test]
fn a_key_with_a_root_sees_nothing_else() {
    let served = Served::start(
        "root",
        &[
            ("inner", "root=in/side"),
            ("quoted", "root=\"a folder\""),
            ("absent", "root=absent"),
            ("linked", "root=link"),
        ],
        &[],
    );
    served.write("root/secret", "secret");
    served.write("root/in/side/own", "own");
    served.write("root/a folder/own", "quoted");
    for link in ["root/in/side/out", "root/link"] {
        symlink("../..", served.path(link)).unwrap();
    }
    fs::remove_file(served.path("root/link")).unwrap();
    symlink("in/side", served.path("root/link")).unwrap();
    served.write("file", "new");
    done(&served.get("inner", "own", "got"));
    assert_eq!(served.read("got"), "own");
    done(&served.get("quoted", "own", "got"));
    assert_eq!(served.read("got"), "quoted");
    done(&served.put("inner", &[], "file", "sub"));
    assert_eq!(served.read("root/in/side/sub"), "new");
    for (from, why) in [("secret", "No such file"), ("out/secret", "leads out of"), ("../../secret", "`..`")] {
        let got = served.get("inner", from, "stolen");
        assert!(!got.status.success() && !served.path("stolen").exists(), "{from} {why}: {}", stderr(&got));
    }
    let put = served.put("inner", &[], "file", "out/planted");
    assert!(!put.status.success() && !served.path("root/planted").exists(), "{}", stderr(&put));
    refused(&served.put("absent", &[], "file", ""), "the served folder cannot be opened");
    // Another client could have made the link.
    refused(&served.put("linked", &[], "file", ""), "the served folder cannot be opened");
    let hosts = served.address.clone();
    done(&served.run("inner", &["bcast", "file", "--to", "sent", "--hosts", &hosts]));
    assert_eq!(served.read("root/in/side/sent"), "new");
    refused(&served.run("inner", &["bcast", "file", "--to", "out/sent", "--hosts", &hosts]), "out");
    assert!(!served.path("root/sent").exists());
}

const PIPELINE: &str = r#"
[[filter]]
name = "source"
KIND
hosts = ["h"]
[[filter]]
name = "sink"
SINK
hosts = ["h"]
[[stream]]
from = "source"
to = "sink"
"#;

#[test]
fn pipelines_keep_to_the_folder_and_the_rights_of_the_key() {
    let clients =
        [("plain", ""), ("inner", "root=in"), ("reader", "ro"), ("bounded", "quota=1m"), ("runner", "programs")];
    let served = Served::start("pipeline", &clients, &["--allow-programs"]);
    served.write("root/in/data", "inner");
    served.write("root/data", "outer");
    let run = |client: &str, source: &str, sink: &str| {
        let text = PIPELINE.replace("KIND", source).replace("SINK", sink);
        served.place.write("pipeline.toml", &text);
        served.run(client, &["pipeline", "run", "pipeline.toml", "--hosts", &format!("h={}", served.address)])
    };
    let (read, write) = ("use = \"read\"\nfile = \"data\"", "use = \"write\"\nfile = \"copy\"");
    done(&run("inner", read, write));
    assert_eq!(served.read("root/in/copy"), "inner");
    done(&run("reader", read, "use = \"discard\""));
    refused(&run("reader", read, write), "the server lets this key read and not write");
    refused(&run("bounded", read, write), "no quota bounds what it writes");
    assert!(!served.path("root/copy").exists());
    let program = "program = [\"touch\", \"ran\"]";
    for client in ["inner", "reader", "bounded"] {
        refused(&run(client, read, program), "the server lets this key run no programs");
    }
    assert!(!served.path("root/ran").exists());
    for client in ["runner", "plain"] {
        let _ = run(client, read, program);
        fs::remove_file(served.path("root/ran")).unwrap_or_else(|error| panic!("{client}: {error}"));
    }
}

#[test]
fn a_quota_counts_small_files_and_entries_over_all_sessions() {
    let served = Served::start("quota", &[("sensor", "quota=64k")], &[]);
    for number in 0..20 {
        served.write(&format!("many/{number}"), "small");
    }
    // Each takes a block of 4 KiB.
    let sent = served.put("sensor", &["--json"], "many/", "");
    refused(&sent, "this key's quota of 64 KiB");
    assert_eq!(fs::read_dir(served.path("root")).unwrap().flatten().count(), 16, "{}", stderr(&sent));
    fs::create_dir(served.path("folder")).unwrap();
    served.write("an-empty-file", "");
    fs::create_dir(served.path("links")).unwrap();
    symlink("x", served.path("links/link")).unwrap();
    for new in ["folder", "an-empty-file", "many/19"] {
        refused(&served.put("sensor", &[], new, "another"), "0 B of this key's quota of 64 KiB are left");
    }
    refused(&served.put("sensor", &[], "links/", ""), "0 B of this key's quota of 64 KiB are left");
    // What is there already takes nothing.
    done(&served.put("sensor", &[], "many/0", ""));
}

#[test]
fn a_folder_that_is_made_for_a_copy_counts() {
    let served = Served::start("folders", &[("sensor", "quota=16k")], &[]);
    served.write("empty/file", "content");
    for number in 0..2 {
        done(&served.put("sensor", &[], "empty/file", &format!("new{number}/")));
    }
    refused(&served.put("sensor", &[], "empty/file", "new2/"), "0 B of this key's quota of 16 KiB are left");
    assert!(!served.path("root/new2").exists());
    assert_eq!(fs::read_dir(served.path("root")).unwrap().flatten().count(), 2);
}

#[test]
fn a_file_above_the_quota_takes_no_disk_and_gives_its_room_back() {
    let served = Served::start("large", &[("sensor", "quota=1m")], &[]);
    let create = |name: &str, bytes: usize| fs::write(served.path(name), vec![7; bytes]).unwrap();
    create("medium", (1 << 20) + 1);
    create("large", 20 << 20);
    for name in ["medium", "large"] {
        refused(&served.put("sensor", &[], name, ""), "this key's quota of 1 MiB");
        assert_eq!(fs::read_dir(served.path("root")).unwrap().flatten().count(), 0, "{name}");
    }
    let hosts = served.address.clone();
    refused(
        &served.run("sensor", &["bcast", "medium", "--to", "sent", "--hosts", &hosts]),
        "this key's quota of 1 MiB",
    );
    create("fits", 1 << 20);
    done(&served.put("sensor", &[], "fits", ""));
    refused(&served.put("sensor", &[], "fits", "twice"), "0 B of this key's quota");
}

/// The server's line of the sensor is read again with a larger quota; the session counts by the old one.
#[test]
fn roles_are_read_again() {
    let served = Served::start("reload", &[("sensor", "ro"), ("other", "")], &[]);
    served.write("file", "content");
    refused(&served.put("sensor", &[], "file", ""), "read and not write");
    let lines = served.read("server/authorized_keys").replace("ro ed", "wo,quota=4k ed");
    served.place.write("server/authorized_keys", &lines);
    kill(Pid::from_raw(served.place.servers[0].id() as i32), Signal::SIGHUP).unwrap();
    let begun = Instant::now();
    while !served.put("sensor", &[], "file", "").status.success() {
        assert!(begun.elapsed() < TIMEOUT, "the roles were not read again");
    }
    refused(&served.put("sensor", &[], "file", "again"), "quota of 4 KiB");
    let bad = lines.replace("wo,", "rw,");
    served.place.write("server/authorized_keys", &bad);
    let begun = served.place.multirail(&["serve", "--keys", "server", "--listen", "127.0.0.1:0"]).output().unwrap();
    refused(
        &begun,
        "authorized_keys: line 1: `rw` is no option; the options are root=DIR, ro, wo, programs, forward, quota=SIZE and rate=RATE",
    );
}

fn session_config(served: &Served, client: &str) -> Config {
    let keys = served.path(client);
    let known = KnownHosts::from_file(&keys.join("known_hosts")).unwrap();
    Config::new().identity(Identity::from_file(&keys.join("id")).unwrap()).known_hosts(known)
}

/// Whether a name is that of a file that has not arrived whole. The folder of notes is none.
fn is_part(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    name.ends_with(files::PART_SUFFIX) && !name.contains("copies")
}

/// One session announces a file that takes the whole quota, and sends nothing more.
#[tokio::test]
async fn what_is_announced_is_reserved_until_it_is_given_up() {
    let served = Served::start("announced", &[("sensor", "quota=8m")], &[]);
    served.write("file", "content");
    let file = served.path("big");
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    // So slow that the file is not there before the test ends.
    let config = session_config(&served, "sensor").rate_limit(RateLimit::new(Some(16 << 10)));
    let mut session = Session::connect(&served.address, config).await.unwrap();
    let options = files::Options::new();
    let sources = [file];
    let mut sending = Box::pin(files::put(&mut session, &sources, Path::new(""), &options));
    let begun = Instant::now();
    let is_begun = || fs::read_dir(served.path("root")).unwrap().any(|entry| is_part(&entry.unwrap().file_name()));
    while !is_begun() {
        assert!(begun.elapsed() < TIMEOUT, "the file does not begin to arrive");
        tokio::time::timeout(Duration::from_millis(50), &mut sending).await.unwrap_err();
    }
    let to = format!("mr://{}/second", served.address);
    let mut second = served.place.multirail(&["cp", "file", &to, "--keys", "sensor"]);
    let waited = tokio::task::spawn_blocking(move || second.output().unwrap());
    let second = tokio::select! {
        second = waited => second.unwrap(),
        // The first session goes on meanwhile.
        sent = &mut sending => panic!("the file has arrived: {sent:?}"),
    };
    refused(&second, "this key's quota of 8 MiB");
    drop(sending);
    drop(session);
    let begun = Instant::now();
    while !served.put("sensor", &[], "file", "second").status.success() {
        assert!(begun.elapsed() < TIMEOUT, "the room was not given back");
    }
}

/// A server that starts finds what a killed one left below the folder of a key.
#[test]
fn what_a_killed_server_left_below_the_folder_of_a_key_is_removed() {
    let mut served = Served::start("killed", &[("inner", "root=in")], &[]);
    fs::create_dir_all(served.path("root/in/below")).unwrap();
    fs::write(served.path("file"), vec![7; 4 << 20]).unwrap();
    let to = format!("mr://{}/below/", served.address);
    let copy = served.place.multirail(&["cp", "--limit", "512k", "file", &to, "--keys", "inner"]).spawn();
    served.place.servers.push(copy.unwrap());
    let begun = Instant::now();
    while names(&served.path("root/in/below")).is_empty() {
        assert!(begun.elapsed() < TIMEOUT, "the file does not begin to arrive");
        std::thread::sleep(Duration::from_millis(1));
    }
    for process in &mut served.place.servers {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(is_part(&names(&served.path("root/in/below"))[0]));
    served.place.serve("root", &["--keys", "server"]);
    assert!(names(&served.path("root/in/below")).is_empty());
    assert_eq!(names(&served.path("root")), ["in"]);
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Two copies at once have one rate together. That they take no longer is not measured here.
#[test]
fn a_key_with_a_rate_is_slowed_down() {
    let served = Served::start("rate", &[("slow", "rate=1m")], &[]);
    for name in ["one", "two"] {
        served.write(name, &"x".repeat(2 << 20));
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        let copies = ["one", "two"].map(|name| {
            let served = &served;
            scope.spawn(move || served.put("slow", &[], name, name))
        });
        copies.into_iter().for_each(|copy| done(&copy.join().unwrap()));
    });
    assert!(began.elapsed() >= Duration::from_secs(3), "4 MiB took {:?}", began.elapsed());
    assert_eq!(served.read("root/one").len() + served.read("root/two").len(), 4 << 20);
}

//! `multirail bcast` as a user runs it: exit codes, stdout, stderr, and the end of its servers.

mod common;

use common::{MULTIRAIL, Place, listening, stderr, unreachable};
use multirail_lab::Lab;
use multirail_testing::{Requirement, skip};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

impl Place {
    fn bcast(&self, args: &[&str]) -> Output {
        self.multirail(&["bcast"]).args(args).output().unwrap()
    }

    /// A file whose length is a multiple of no piece.
    fn source(&self) -> Vec<u8> {
        let mut state = 7u32;
        let bytes: Vec<u8> = (0..1_300_001)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        fs::write(self.path("src"), &bytes).unwrap();
        bytes
    }
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {text}{}", stderr(output)))
}

#[test]
fn three_hosts_receive_a_file_and_the_summary_reports_it() {
    let mut place = Place::new("three");
    let bytes = place.source();
    let (x, y, z) = (place.serve("x", &[]), place.serve("y", &[]), place.serve("z", &[]));
    fs::write(place.path("hosts"), format!("{x} cluster=near # one\n{y} cluster=far\n{z} cluster=far\n")).unwrap();
    let done = place.bcast(&["--json", "src", "--to", "copy", "--hosts", "hosts"]);
    assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""));
    let summary = json(&done);
    assert_eq!((summary["complete"].as_u64(), summary["failed"].as_u64()), (Some(3), Some(0)));
    assert_eq!((summary["bytes"].as_u64(), summary["method"].as_str()), (Some(bytes.len() as u64), Some("adaptive")));
    assert_eq!(summary["root_cluster"], "root");
    assert!(summary["seconds"].as_f64().unwrap() > 0.0 && summary["rate_mbit_s"].as_f64().unwrap() > 0.0);
    let hosts = summary["hosts"].as_array().unwrap();
    let named: Vec<_> =
        hosts.iter().map(|h| (h["address"].as_str().unwrap(), h["cluster"].as_str().unwrap())).collect();
    assert_eq!(named, [(x.as_str(), "near"), (y.as_str(), "far"), (z.as_str(), "far")]);
    for host in hosts {
        assert_eq!((&host["complete"], &host["reason"]), (&Value::Bool(true), &Value::Null));
        assert_eq!(host["held_bytes"].as_u64(), Some(bytes.len() as u64));
        assert!(host["seconds"].as_f64().is_some());
    }
    for name in ["x", "y", "z"] {
        assert!(fs::read(place.path(name).join("copy")).unwrap() == bytes, "{name}");
    }
    // The same as text, with a tree and measured clusters.
    fs::create_dir_all(place.path("tree/below")).unwrap();
    fs::write(place.path("tree/below/file"), "x").unwrap();
    let without = place.bcast(&["tree", "--to", "copies", "--hosts", &x]);
    assert_eq!(without.status.code(), Some(2), "{}", stderr(&without));
    assert!(stderr(&without).contains("tree is a directory; add -r"));
    let tree = place.bcast(&["-r", "tree", "--to", "copies", "--hosts", &[x, y, z].join(",")]);
    assert_eq!(tree.status.code(), Some(0), "{}", stderr(&tree));
    let said = String::from_utf8_lossy(&tree.stdout);
    assert!(said.starts_with("3 of 3 hosts are complete: 1 B in "), "{said}");
    assert_eq!(fs::read_to_string(place.path("z/copies/tree/below/file")).unwrap(), "x");
}

#[test]
fn an_absent_host_is_named_and_the_others_complete() {
    let mut place = Place::new("absent");
    let bytes = place.source();
    let (x, y, gone) = (place.serve("x", &[]), place.serve("y", &[]), unreachable());
    let hosts = [x.as_str(), &gone, &y].join(",");
    let done = place.bcast(&["--json", "src", "--to", "copy", "--hosts", &hosts]);
    assert_eq!(done.status.code(), Some(1), "{}", stderr(&done));
    let summary = json(&done);
    let complete: Vec<_> = summary["hosts"].as_array().unwrap().iter().map(|h| h["complete"] == true).collect();
    assert_eq!(complete, [true, false, true]);
    let host = &summary["hosts"][1];
    assert_eq!(host["address"].as_str(), Some(gone.as_str()));
    assert!(host["reason"].as_str().unwrap().contains("cannot reach"), "{host}");
    assert!(fs::read(place.path("y/copy")).unwrap() == bytes);
    // As text.
    let done = place.bcast(&["src", "--to", "copy", "--hosts", &hosts]);
    assert_eq!(done.status.code(), Some(1));
    assert!(stderr(&done).contains(&format!("error: {gone} is incomplete: ")), "{}", stderr(&done));
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("2 of 3 hosts are complete: 1.2 MiB in "));
}

#[test]
fn a_plan_is_shown_and_nothing_is_sent() {
    let mut place = Place::new("plan");
    place.source();
    let (x, y) = (place.serve("x", &[]), place.serve("y", &[]));
    fs::write(place.path("rates"), "a-b=80mbit # both ways\na>c=40mbit c>a=40mbit\nb-c=8mbit\n").unwrap();
    let clusters = format!("a=self;b={x};c={y}");
    let args = ["--json", "src", "--to", "c", "--plan", "--hosts", &format!("{x},{y}"), "--clusters", &clusters];
    let plan = place.bcast(&[&args[..], &["--bandwidth", "rates"]].concat());
    assert_eq!(plan.status.code(), Some(0), "{}", stderr(&plan));
    let plan = json(&plan);
    assert_eq!((plan["decided_by"].as_str(), plan["root"]["cluster"].as_str()), (Some("given"), Some("a")));
    assert_eq!(plan["hosts"][1]["address"].as_str(), Some(y.as_str()));
    let between = plan["between"].as_array().unwrap();
    let pairs: Vec<_> = between.iter().map(|b| (b["from"].as_str().unwrap(), b["to"].as_str().unwrap())).collect();
    assert_eq!(pairs, [("a", "b"), ("a", "c"), ("b", "c")]);
    assert!(between.iter().all(|b| b["rtt_us"].as_f64().unwrap() > 0.0));
    // To c: 40 directly, 8 by b.
    assert!((plan["bound_mbit_s"].as_f64().unwrap() - 48.0).abs() < 1e-6, "{plan}");
    // With access rates, the host of c cannot take as much. The absence of one host's rate is an error.
    let rates = fs::read_to_string(place.path("rates")).unwrap();
    fs::write(place.path("access"), format!("{rates}self=64mbit {x}=64mbit\n*=24mbit\n")).unwrap();
    let plan = json(&place.bcast(&[&args[..], &["--bandwidth", "access"]].concat()));
    assert!((plan["bound_mbit_s"].as_f64().unwrap() - 24.0).abs() < 1e-6, "{plan}");
    fs::write(place.path("access"), format!("{rates}self=64mbit {x}=64mbit\n")).unwrap();
    let refused = place.bcast(&[&args[..], &["--bandwidth", "access"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let why = format!("--bandwidth access: {y} has no access rate, but other hosts have one");
    assert!(stderr(&refused).contains(&why), "{}", stderr(&refused));
    assert!(!place.path("x/c").exists() && !place.path("y/c").exists());
    let measured = place.bcast(&["src", "--to", "c", "--plan", "--hosts", &format!("{x},{y},{}", unreachable())]);
    assert_eq!(measured.status.code(), Some(0), "{}", stderr(&measured));
    let text = String::from_utf8_lossy(&measured.stdout);
    assert!(text.contains("self (root)") && text.contains(" is absent: cannot reach "), "{text}");
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let place = Place::new("usage");
    place.source();
    place.write("twice", "node1\nnode2\n\nnode1:7717 # again\n");
    place.write("half", "node1 cluster=a\nnode2\n");
    place.write("odd", "node1 weight=3\n");
    place.write("rates", "1-2=fast\n");
    for (args, why) in [
        (&["src", "--to", "x"][..], "use --hosts FILE"),
        (&["src", "--hosts", "node1"], "--to <DEST>"),
        (&["src", "--to", "x", "--hosts", "twice"], "twice: line 4: node1:7717 is in line 1 already"),
        (&["src", "--to", "x", "--hosts", "half"], "node2 has no cluster, but other hosts have one"),
        (&["src", "--to", "x", "--hosts", "odd"], "odd: line 1: \"weight=3\" is unknown"),
        (&["src", "--to", "x", "--hosts", "./absent"], "cannot read ./absent"),
        (&["src", "--to", "x", "--hosts", "a,b,a"], "item 3: a is in item 1 already"),
        (&["src", "--to", "x", "--hosts", "self"], "this host is the only one"),
        (&["src", "--to", "x", "--hosts", "b,-oProxyCommand=x"], "does not begin with '-'"),
        (&["src", "--to", "x", "--hosts", "a,b", "--clusters", "a;c"], "\"c\", which is not in the list of hosts"),
        (
            &["src", "--to", "x", "--hosts", "a,b", "--clusters", "a;;b"],
            "cluster 2 in the list of clusters has no host",
        ),
        (&["src", "--to", "x", "--hosts", "a,b", "--cluster-by", "rack"], "write subnet"),
        (&["src", "--to", "x", "--hosts", "a,b", "--method", "best"], "unknown multicast method `best`"),
        (&["src", "--to", "x", "--hosts", "a,b", "--method", "balanced"], "give them with --bandwidth FILE"),
        (&["src", "--to", "/x", "--hosts", "a,b"], "remove the first `/`"),
        (
            &["src", "--to", "x", "--hosts", "127.0.0.1:9", "--clusters", "127.0.0.1:9,self", "--bandwidth", "rates"],
            "--bandwidth rates: line 1: \"1-2=fast\"",
        ),
    ] {
        let output = place.bcast(args);
        assert_eq!(output.status.code(), Some(2), "{args:?} {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?} {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn servers_over_ssh_are_started_and_end() {
    let place = Place::new("ssh");
    let bytes = place.source();
    let ssh = place.fake_ssh();
    let to = place.path("copy's");
    let done = place.bcast(&["--json", "src", "--to", to.to_str().unwrap(), "--hosts", "127.0.0.2,127.0.0.9", &ssh]);
    assert_eq!(done.status.code(), Some(1), "{}", stderr(&done));
    let summary = json(&done);
    assert_eq!(summary["hosts"][0]["complete"], true, "{summary}");
    let why = summary["hosts"][1]["reason"].as_str().unwrap();
    assert_eq!(why, "starting a server over ssh failed: Permission denied (publickey).");
    assert!(fs::read(&to).unwrap() == bytes);
    let log = place.ssh_log();
    assert_eq!(log.lines().filter(|l| l.starts_with("began ")).count(), 2, "{log}");
    assert!(log.lines().any(|l| l == "ended 0"), "the server ended by itself: {log}");
    // The token would be 256 bits in hexadecimal digits.
    let longest = log.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap();
    assert!(longest < 32, "no token on a command line: {log}");

    let unreachable = place.bcast(&["src", "--to", "x", "--hosts", "127.0.0.9", &ssh]);
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(stderr(&unreachable).contains("no host can be reached; the first error"), "{}", stderr(&unreachable));
}

#[test]
fn a_server_with_its_token_from_stdin_ends_with_it() {
    let place = Place::new("stdin");
    let serve = |secret: &str| {
        let mut serve = common::multirail();
        serve.args(["--json", "serve", "--listen", "127.0.0.1:0", "--token-file", "-"]).current_dir(&place.dir);
        let server = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        writeln!(server.stdin.as_ref().unwrap(), "{secret}").unwrap();
        server
    };
    let mut server = serve(&place.token());
    let address = listening(&mut server);
    let plan = ["bcast", "token", "--to", "x", "--plan", "--hosts", &address, "--token-file", "token"];
    let plan = common::multirail().args(plan).current_dir(&place.dir).output().unwrap();
    assert!(!String::from_utf8_lossy(&plan.stdout).contains("is absent"), "{plan:?}");
    assert!(server.try_wait().unwrap().is_none(), "it serves while its stdin is open");
    drop(server.stdin.take());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let short = serve("short").wait_with_output().unwrap();
    assert_eq!(short.status.code(), Some(1));
    assert!(stderr(&short).contains("the token on stdin: it has 5 characters"), "{}", stderr(&short));
}

/// The tasks of `srun multirail bcast`, each on its own host: all run the same command and end.
#[test]
fn tasks_of_slurm_find_each_other() {
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    let place = Place::new("slurm");
    let bytes = place.source();
    place.token();
    let lab = Network::up(&place);
    let task = |task: u32, node: u32, local: u32, host: &str| {
        fs::create_dir_all(place.path(host)).unwrap();
        let to = format!("{host}/copy");
        common::multirail()
            .args(["lab", "exec", "--name", &lab.0, host, "--", MULTIRAIL])
            .args(["--json", "bcast", "src", "--to", &to, "--token-file", "token"])
            .env("SLURM_JOB_ID", "1")
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_JOB_NODELIST", "10.80.0.[2-3],10.81.0.2")
            .env("SLURM_NTASKS", "4")
            .env("SLURM_PROCID", task.to_string())
            .env("SLURM_NODEID", node.to_string())
            .env("SLURM_LOCALID", local.to_string())
            .current_dir(&place.dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // The root first: it waits for the others.
    let tasks = [task(0, 0, 0, "a0"), task(1, 0, 1, "a0"), task(2, 1, 0, "a1"), task(3, 2, 0, "b0")];
    let ended: Vec<Output> = tasks.into_iter().map(|t| t.wait_with_output().unwrap()).collect();
    for (number, output) in ended.iter().enumerate() {
        assert_eq!(output.status.code(), Some(0), "task {number}: {}", stderr(output));
    }
    assert_eq!(json(&ended[0])["complete"].as_u64(), Some(2));
    assert!(ended[1].stdout.is_empty() && ended[1].stderr.is_empty(), "a second task on a node does nothing");
    for host in ["a1", "b0"] {
        assert!(fs::read(place.path(host).join("copy")).unwrap() == bytes, "{host}");
    }
    assert!(!place.path("a0/copy").exists(), "the root has it already");
}

/// Two clusters, which are taken down when this is dropped.
struct Network(String);

impl Network {
    fn up(place: &Place) -> Self {
        let name = format!("bcast-{}", std::process::id());
        let lab = Network(name);
        let up = ["lab", "up", "--name", &lab.0, "--clusters", "a=2,b=1", "--link", "a-b=80mbit"];
        let up = common::multirail().args(up).current_dir(&place.dir).output().unwrap();
        assert!(up.status.success(), "{}", stderr(&up));
        lab
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = common::multirail().args(["lab", "down", "--name", &self.0]).output();
    }
}

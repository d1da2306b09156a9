//! Programs that keep to the rules, and programs that do not.

use super::Failure;
use crate::{CopyInfo, Filters, Group, Io, Received, RunningGroup};
use multirail_net::Config;
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex};

type Bag = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// Buffers for a program, and what it makes of them.
fn group(buffers: u64, bytes: usize, program: &[&str], copies: usize, silence_s: f64) -> (Group, Bag) {
    let (bag, known) = (Bag::default(), Filters::none().with_programs(Path::new("/tmp")));
    let mut group = Group::new(Config::default());
    group.filter("source", move |_: &CopyInfo| {
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            for tag in 0..buffers {
                io.write(0, tag, vec![tag as u8; bytes])?;
            }
            Ok(())
        }
    });
    group
        .filter_of_kind("program", "program", json!({"program": program, "silence_s": silence_s}), &known)
        .copies(copies);
    let into = bag.clone();
    group.filter("sink", move |_: &CopyInfo| {
        let bag = into.clone();
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            while let Some(Received { tag, body, .. }) = io.read()? {
                bag.lock().unwrap().push((tag, body.into_vec()));
            }
            Ok(())
        }
    });
    group.stream("source", "program").stream("program", "sink");
    group.limit_bytes(1 << 20);
    (group, bag)
}

fn sorted(bag: &Bag) -> Vec<(u64, Vec<u8>)> {
    let mut all = std::mem::take(&mut *bag.lock().unwrap());
    all.sort();
    all
}

/// A shell's script, and what the unit of work failed with.
fn failure(script: &str, silence_s: f64) -> String {
    let (group, _) = group(200, 50_000, &["sh", "-c", script], 2, silence_s);
    let mut running = group.start().unwrap();
    let told = running.run(b"").unwrap_err().to_string();
    assert!(told.contains("of filter \"program\" on host local failed: "), "{told}");
    told
}

fn is_there(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A zombie waits for its parent, and runs no more.
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Waits until a killed process has ended.
fn wait_gone(pid: &str) {
    for _ in 0..2000 {
        if !is_there(pid) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("process {pid} is still there");
}

/// Numbers of processes that scripts wrote into a file of this name.
struct Pids(String);

impl Pids {
    fn new(name: &str) -> Self {
        Self(format!("/tmp/multirail-program-{name}-{}", std::process::id()))
    }

    fn read(&self) -> Vec<String> {
        for _ in 0..2000 {
            let read = std::fs::read_to_string(&self.0).unwrap_or_default();
            if read.lines().count() >= 2 {
                return read.lines().map(str::to_owned).collect();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("no numbers in {}", self.0);
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn cat_passes_data_with_any_number_of_copies_and_in_every_unit() {
    for (buffers, bytes) in [(0, 0), (1, 0), (300, 1000), (20, 1 << 20)] {
        let wanted: Vec<_> = (0..buffers).map(|tag| (tag, vec![tag as u8; bytes])).collect();
        for copies in [1, 3] {
            let (group, bag) = group(buffers, bytes, &["cat"], copies, 20.0);
            let mut running = group.start().unwrap();
            for _ in 0..2 {
                running.run(b"").unwrap();
                assert!(sorted(&bag) == wanted, "{buffers} of {bytes} bytes, {copies} copies");
            }
        }
    }
}

#[test]
fn a_program_that_reads_everything_first_causes_no_deadlock() {
    let (group, bag) = group(50, 100_000, &["sh", "-c", "f=$(mktemp); cat > $f; cat $f; rm $f"], 1, 20.0);
    group.start().unwrap().run(b"").unwrap();
    assert_eq!(sorted(&bag).len(), 50);
}

#[test]
fn a_program_may_write_more_or_less_than_it_reads_and_knows_its_copy() {
    let script = "cat > /dev/null; printf '\\006\\000\\000\\000%s' \"$MULTIRAIL_QUERY/$MULTIRAIL_COPIES\"; printf '\\000\\000\\000\\000'";
    let (group, bag) = group(7, 10, &["sh", "-c", script], 1, 20.0);
    group.start().unwrap().run(b"view").unwrap();
    assert_eq!(sorted(&bag), [(0, b"view/1".to_vec()), (1, vec![])]);
}

#[test]
fn failures_of_a_program_are_reported() {
    for (script, silence_s, parts) in [
        ("exit 3", 20.0, ["it failed: exit status: 3", ""]),
        ("echo a >&2; echo no ink >&2; exit 1", 20.0, ["exit status: 1; its stderr ends:", "no ink"]),
        ("kill -SEGV $$", 20.0, ["it failed: signal: 11 (SIGSEGV)", ""]),
        (
            "cat > /dev/null; printf '\\012\\000\\000\\000abc'",
            20.0,
            ["ended in the middle of a buffer", "7 of 14 bytes"],
        ),
        ("printf '\\012'; cat > /dev/null", 20.0, ["ended in the middle of a buffer", "1 of 4 bytes"]),
        ("printf '\\377\\377\\377\\377'; cat", 20.0, ["wrote the length 4294967295", "limit is 1048576"]),
        ("sleep 100", 0.3, ["it has read nothing for 0.3 s", "\"silence_s\""]),
        // A busy machine does not keep `cat` from reading for so long.
        ("cat > /dev/null; sleep 100", 2.0, ["written nothing for 2 s after its input ended", "\"silence_s\""]),
        ("exit 0", 20.0, ["it ended, with exit code 0, before its input did", ""]),
        ("head -c 10000 > /dev/null", 20.0, ["it ended, with exit code 0, before its input did", ""]),
        ("exec <&-; sleep 100", 20.0, ["it closed its input before its input ended", ""]),
        // It reads on, but slowly: the end of its output may be seen late, since a process that is
        // being started has its pipes, too, until it executes its program.
        (
            "exec >&-; while sleep 0.05; do head -c 1000 >/dev/null; done",
            20.0,
            ["it closed its output before its input ended", ""],
        ),
    ] {
        let told = failure(script, silence_s);
        assert!(parts.iter().all(|part| told.contains(part)), "{script}: {told}");
    }
    for (program, part) in [
        (&["no-such-program"][..], "cannot start \"no-such-program\" in /tmp: No such file"),
        (&[], "\"program\" is empty"),
        (&["/etc/passwd"], "cannot start \"/etc/passwd\" in /tmp: Permission denied"),
    ] {
        let (group, _) = group(1, 1, program, 1, 1.0);
        let told = group.start().unwrap().run(b"").unwrap_err().to_string();
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn the_group_continues_after_a_failed_program() {
    let script = "test $MULTIRAIL_UNIT = 1 && exit 1; exec cat";
    let (group, bag) = group(200, 5000, &["sh", "-c", script], 2, 20.0);
    let mut running = group.start().unwrap();
    running.run(b"").unwrap_err();
    sorted(&bag);
    running.run(b"").unwrap();
    assert_eq!(sorted(&bag).len(), 200);
}

#[test]
fn an_aborted_or_ended_program_leaves_nothing_behind() {
    let end = |how: &str, script: &str, end: &dyn Fn(&mut RunningGroup, u32)| {
        let pids = Pids::new(how);
        let script = script.replace("PIDS", &pids.0);
        let (group, _) = group(50, 10, &["sh", "-c", &script], 1, 0.0);
        let mut running = group.start().unwrap();
        let unit = running.begin(b"");
        let started = pids.read();
        end(&mut running, unit);
        if how == "drop" {
            drop(running);
        }
        started.iter().for_each(|pid| wait_gone(pid));
    };
    // It has a child that ignores all signals it can, and neither reads.
    let stubborn = "trap '' TERM HUP INT; sleep 1000 & echo $! > PIDS; echo $$ >> PIDS; wait";
    end("give-up", stubborn, &|running, unit| {
        running.abort(unit);
        let _ = running.wait(unit);
    });
    end("drop", stubborn, &|_, _| {});
    // One that ends well and leaves something behind, which holds its pipes.
    end("end", "sleep 1000 & echo $! > PIDS; echo $$ >> PIDS; exec cat", &|running, unit| running.wait(unit).unwrap());
}

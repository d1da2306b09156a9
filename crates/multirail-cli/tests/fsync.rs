//! `--fsync`: the system calls of a server, as strace shows them.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use common::{MULTIRAIL, Place, listening, stderr};
use multirail_testing::{Requirement, skip};
use std::fs;
use std::process::{Command, Stdio};

/// Starts a server for the folder `to` under strace and returns its address, or why it cannot.
fn serve_traced(place: &mut Place) -> Result<String, String> {
    let probe = Command::new("strace").args(["-D", "-o", "/dev/null", "true"]).output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(output) => return Err(stderr(&output)),
        Err(error) => return Err(error.to_string()),
    }
    fs::create_dir(place.path("to")).unwrap();
    // With -D, the server is the child and strace is not, so that killing the child ends both.
    let mut server = Command::new("strace");
    server.args(["-D", "-f", "-y", "-s", "300", "-o", "trace", "-e", "trace=fsync,mkdirat,?renameat,?renameat2"]);
    server.args([MULTIRAIL, "--json", "serve", "--listen", "127.0.0.1:0", "--root", "to"]);
    server.env("MULTIRAIL_KEYS", common::keys());
    let mut server = server.current_dir(&place.dir).stdout(Stdio::piped()).spawn().unwrap();
    let address = listening(&mut server);
    place.servers.push(server);
    Ok(address)
}

/// The paths of the descriptors and the names in a line: `1234 mkdirat(5</a/b>, "c", 0700) = 0`.
fn paths_and_names(line: &str) -> (Vec<&str>, Vec<&str>) {
    let between = |open: char, close: char| {
        let parts = line.split(open).skip(1);
        parts.map(move |part| part.split(close).next().unwrap()).collect()
    };
    let paths = between('<', '>');
    (paths, line.split('"').skip(1).step_by(2).collect())
}

/// Checks that every file is synced before it is renamed, and every name after it is given. Returns
/// how many directories and files got names.
fn check(trace: &str) -> (usize, usize) {
    let lines: Vec<&str> = trace.lines().collect();
    let is_synced = |lines: &[&str], path: &str| {
        let sync = format!("<{path}>");
        lines.iter().any(|line| line.contains(" fsync(") && line.contains(&sync))
    };
    let (mut directories, mut files) = (0, 0);
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.ends_with("= 0")) {
        let (paths, names) = paths_and_names(line);
        if line.contains(" mkdirat(") && !names[0].ends_with(".multirail-part") {
            directories += 1;
            assert!(is_synced(&lines[at..], paths[0]), "{line} in {trace}");
        }
        if line.contains(" renameat") {
            files += 1;
            assert!(is_synced(&lines[..at], &format!("{}/{}", paths[0], names[0])), "{line} in {trace}");
            assert!(is_synced(&lines[at..], paths[1]), "{line} in {trace}");
        }
    }
    (directories, files)
}

fn make_tree(place: &Place) {
    fs::create_dir_all(place.path("tree/below")).unwrap();
    for (name, bytes) in [("small", 10), ("below/medium", 100_000), ("below/large", 2_000_000)] {
        fs::write(place.path("tree").join(name), vec![7; bytes]).unwrap();
    }
}

#[test]
fn a_copy_with_fsync_is_on_the_disk_with_its_directories() {
    let mut place = Place::new("cp");
    make_tree(&place);
    let address = match serve_traced(&mut place) {
        Ok(address) => address,
        Err(why) => return skip(Requirement::Strace, why),
    };
    let done = place.multirail(&["cp", "-r", "--fsync", "tree", &format!("mr://{address}/new")]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let (directories, files) = check(&fs::read_to_string(place.path("trace")).unwrap());
    assert!(directories >= 2 && files == 3, "{directories} directories, {files} files");
}

#[test]
fn a_broadcast_with_fsync_is_on_the_disk_with_its_directories() {
    let mut place = Place::new("bcast");
    make_tree(&place);
    let address = match serve_traced(&mut place) {
        Ok(address) => address,
        Err(why) => return skip(Requirement::Strace, why),
    };
    let args = ["bcast", "-r", "--fsync", "tree", "--to", "new", "--hosts", &address];
    let done = place.multirail(&args).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    let (directories, files) = check(&fs::read_to_string(place.path("trace")).unwrap());
    assert!(directories >= 2 && files == 3, "{directories} directories, {files} files");
}

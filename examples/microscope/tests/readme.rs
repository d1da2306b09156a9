//! The README's commands are run as they stand there, in an empty folder: on a picture from here,
//! so that nothing is fetched, and a slide small enough for a test.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const README: &str = include_str!("../README.md");
const PICTURE_PIXELS: u32 = 256;
/// What the README has, and what is run instead.
const TIMES: (&str, &str) = ("--times 96", "--times 8");
const PORTS: [&str; 2] = ["7731", "7732"];

/// A reader would see that a server in the background is there.
const PRELUDE: &str = r#"
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
ready() {
    for _ in {1..200}; do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.05
    done
    echo "no server at $1" >&2
    return 1
}
set -x
"#;

/// Ends with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn picture(path: &Path) {
    let mut encoder = png::Encoder::new(fs::File::create(path).unwrap(), PICTURE_PIXELS, PICTURE_PIXELS);
    encoder.set_color(png::ColorType::Rgb);
    let pixels: Vec<u8> = (0..PICTURE_PIXELS * PICTURE_PIXELS * 3).map(|i| (i * 7 % 251) as u8).collect();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
}

/// All `sh` blocks, one after the other.
fn script() -> String {
    let mut script = String::new();
    for block in README.split("\n```").skip(1).step_by(2) {
        let (info, commands) = block.split_once('\n').unwrap();
        assert_eq!(info, "sh", "a block that is not run");
        for line in commands.lines() {
            script += &format!("{line}\n");
            if let (true, Some((_, rest))) = (line.ends_with('&'), line.split_once("--listen 127.0.0.1:")) {
                script += &format!("ready {}\n", rest.split(' ').next().unwrap());
            }
        }
    }
    script
}

#[test]
fn commands_of_the_readme_run_and_both_tours_show_the_same() {
    let folder = Folder(std::env::temp_dir().join(format!("microscope-readme-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    picture(&folder.0.join("small.png"));
    program(
        &folder.0.join("examples/microscope/get-picture"),
        "#!/bin/sh\nmkdir -p \"$1\" && cp small.png \"$1/ihc.png\"\n",
    );
    let cargo = format!(
        "#!/bin/sh\n[ \"$1 $2 $3 $4 $5\" = \"run --release -p microscope --\" ] && shift 5 && exec '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_microscope")
    );
    program(&folder.0.join("bin/cargo"), &cargo);
    let mut script = script();
    let listeners = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let free = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port().to_string());
    drop(listeners);
    for (theirs, ours) in [TIMES, (PORTS[0], &free[0]), (PORTS[1], &free[1])] {
        assert!(script.contains(theirs), "the README has no {theirs}");
        script = script.replace(theirs, ours);
    }
    let path = format!("{}:{}", folder.0.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("timeout")
        .args(["60", "bash", "-c", &format!("{PRELUDE}{script}")])
        .current_dir(&folder.0)
        .env("PATH", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let pictures = |of: &str| {
        let mut files: Vec<_> = fs::read_dir(folder.0.join(of))
            .unwrap_or_else(|e| panic!("{of}: {e}\n{said}"))
            .map(|f| f.unwrap())
            .collect();
        files.sort_by_key(fs::DirEntry::file_name);
        files.iter().map(|f| (f.file_name(), fs::read(f.path()).unwrap())).collect::<Vec<_>>()
    };
    let (here, hosts) = (pictures("target/microscope/pictures"), pictures("microscope-pictures"));
    assert!(here.len() > 4, "{said}");
    assert!(here == hosts, "{said}");
}

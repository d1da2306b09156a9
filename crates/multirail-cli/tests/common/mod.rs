//! What tests of several commands need: a folder with servers below it, and an ssh that goes nowhere.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");

/// A folder to work in, and servers below it, all of which go.
pub struct Place {
    pub dir: PathBuf,
    pub servers: Vec<Child>,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let name = format!("{}-{name}-{}", env!("CARGO_CRATE_NAME"), std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&dir).unwrap();
        Self { dir, servers: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A command that works in the folder.
    pub fn multirail(&self, args: &[&str]) -> Command {
        let mut command = Command::new(MULTIRAIL);
        command.args(args).current_dir(&self.dir);
        command
    }

    /// Starts a server for the folder `name`; its address.
    pub fn serve(&mut self, name: &str, options: &[&str]) -> String {
        fs::create_dir_all(self.path(name)).unwrap();
        let mut serve = self.multirail(&["--json", "serve", "--listen", "127.0.0.1:0", "--root", name]);
        let mut server = serve.args(options).stdout(Stdio::piped()).spawn().unwrap();
        let ready = listening(&mut server);
        self.servers.push(server);
        ready
    }

    /// An `ssh` that runs the command here, and writes into `log` what it was given and, at its end, that it ended. It gets into
    /// all hosts but 127.0.0.9. The option that makes a command take it.
    pub fn fake_ssh(&self) -> String {
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\necho \"began $*\" >> {log}\n\
             case \"$*\" in *127.0.0.9*) echo 'Permission denied (publickey).' >&2; exit 255;; esac\n\
             PATH={target}:$PATH sh -c \"$last\"\necho \"ended $?\" >> {log}\n",
            log = self.path("log").display(),
            target = Path::new(MULTIRAIL).parent().unwrap().display(),
        );
        self.write("ssh", &script);
        fs::set_permissions(self.path("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        format!("--ssh={}", self.path("ssh").display())
    }

    /// What it has written.
    pub fn ssh_log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
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

/// Where a server with `--json` listens.
pub fn listening(server: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    ready["listening"].as_str().unwrap().to_owned()
}

/// An address where nobody listens.
pub fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

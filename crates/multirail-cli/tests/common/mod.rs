//! Helpers for the tests of several commands: a folder with servers below it, and a local `ssh`.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");

/// The command, with keys of the tests' own.
pub fn multirail() -> Command {
    let mut command = Command::new(MULTIRAIL);
    command.env("MULTIRAIL_KEYS", keys());
    command
}

/// The directory of the tests' keys.
pub fn keys() -> &'static str {
    concat!(env!("CARGO_TARGET_TMPDIR"), "/keys")
}

/// A working folder and servers of folders below it. All are removed when this is dropped.
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

    /// Creates the file `token`, and returns the token.
    pub fn token(&self) -> String {
        let created = self.multirail(&["token", "token"]).output().unwrap();
        assert!(created.status.success(), "{}", stderr(&created));
        fs::read_to_string(self.path("token")).unwrap().trim().to_owned()
    }

    /// A command that runs in the folder.
    pub fn multirail(&self, args: &[&str]) -> Command {
        let mut command = multirail();
        command.args(args).current_dir(&self.dir);
        command
    }

    /// Starts a server for the folder `name` and returns its address.
    pub fn serve(&mut self, name: &str, options: &[&str]) -> String {
        fs::create_dir_all(self.path(name)).unwrap();
        let mut serve = self.multirail(&["--json", "serve", "--listen", "127.0.0.1:0", "--root", name]);
        let mut server = serve.args(options).stdout(Stdio::piped()).spawn().unwrap();
        let ready = listening(&mut server);
        self.servers.push(server);
        ready
    }

    /// The `--ssh` option for a script that runs the command on this machine, and logs its
    /// arguments and its end. It fails for 127.0.0.9.
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

    /// The log of [`Place::fake_ssh`].
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

/// The address on which a server with `--json` listens.
pub fn listening(server: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    ready["listening"].as_str().unwrap().to_owned()
}

/// An address without a listener.
pub fn unreachable() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

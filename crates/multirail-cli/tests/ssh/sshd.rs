//! An sshd with keys, configuration, port and home of its own, and the command that copies over it.

use multirail_testing::{Requirement, skip};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");
/// What takes milliseconds, also where other programs use the processors.
const GENEROUS: Duration = Duration::from_secs(60);

/// Two hosts: the one of the test, and `far`, which ssh reaches. Both are this machine, or two hosts of a lab on it.
/// Everything that it starts and writes is gone when this is dropped.
pub struct Hosts {
    dir: PathBuf,
    sshd: Child,
}

impl Hosts {
    /// Starts sshd on loopback. `None`, and the test is skipped, where sshd is not installed.
    pub fn start(name: &str) -> Option<Hosts> {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self::start_at(name, address, |sshd| Command::new(sshd), || TcpStream::connect(address).is_ok())
    }

    /// The same at another address. `command` makes the command that runs a program on `far`, and `listens` tells whether
    /// sshd listens.
    pub fn start_at(
        name: &str,
        address: SocketAddr,
        command: impl FnOnce(&Path) -> Command,
        listens: impl Fn() -> bool,
    ) -> Option<Hosts> {
        let Some(sshd) = program("sshd") else {
            skip(Requirement::Sshd, "sshd is not installed");
            return None;
        };
        // The directory of unprivileged processes of sshd, which Debian makes at the start of its
        // service. Others may use it, so it stays.
        if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ssh-{name}-{}", std::process::id()));
        for below in ["near", "home", "tmp", "bin"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key)).status();
            assert!(made.unwrap().success());
        }
        let (ip, port) = (address.ip(), address.port());
        let user = Command::new("id").arg("-un").output().unwrap();
        let (user, at) = (String::from_utf8(user.stdout).unwrap(), dir.display());
        let host_key = fs::read_to_string(dir.join("host.pub")).unwrap();
        fs::write(dir.join("known"), format!("[{ip}]:{port} {host_key}")).unwrap();
        fs::write(
            dir.join("sshd.conf"),
            format!(
                "ListenAddress {address}\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nPidFile none\n\
                 StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nForceCommand {at}/login\n"
            ),
        )
        .unwrap();
        fs::write(
            dir.join("ssh.conf"),
            format!(
                "Host far storage1\nHostName {ip}\nPort {port}\nUser {user}\nIdentityFile {at}/user\nIdentitiesOnly yes\n\
                 IdentityAgent none\nUserKnownHostsFile {at}/known\nGlobalKnownHostsFile none\n\
                 StrictHostKeyChecking yes\nBatchMode yes\n"
            ),
        )
        .unwrap();
        std::os::unix::fs::symlink(MULTIRAIL, dir.join("bin/multirail")).unwrap();
        let started = command(&sshd).args(["-D", "-e", "-f"]).arg(dir.join("sshd.conf")).stderr(Stdio::null()).spawn();
        let hosts = Hosts { dir, sshd: started.unwrap() };
        hosts.on_login("");
        wait_until("sshd listens", listens);
        Some(hosts)
    }

    /// Sets what the shell of `far` does before each command.
    pub fn on_login(&self, first: &str) {
        let (at, mark) = (self.dir.display(), self.mark());
        let login = format!(
            "#!/bin/sh\ncd {at}/home\nexport HOME={at}/home TMPDIR={at}/tmp PATH={at}/bin:/usr/bin:/bin {mark}\n\
             {first}\nexec sh -c \"$SSH_ORIGINAL_COMMAND\"\n"
        );
        self.script("login", &login);
    }

    /// Replaces or adds a program of `far`; without text, removes it.
    pub fn far_program(&self, name: &str, text: Option<&str>) {
        let _ = fs::remove_file(self.dir.join("bin").join(name));
        if let Some(text) = text {
            self.script(&format!("bin/{name}"), text);
        }
    }

    fn script(&self, name: &str, text: &str) {
        let (path, new) = (self.dir.join(name), self.dir.join("new"));
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// A variable in the environment of each process on `far`.
    fn mark(&self) -> String {
        format!("MULTIRAIL_TEST_FAR={}", self.dir.display())
    }

    /// A path of the near host.
    pub fn near(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join("near").join(name)
    }

    /// A path in the home on `far`.
    pub fn far(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join("home").join(name)
    }

    /// Replaces the keys of hosts that ssh knows by one that no host has.
    pub fn forget_host_key(&self) {
        let known = fs::read_to_string(self.dir.join("known")).unwrap();
        let host = known.split_whitespace().next().unwrap();
        fs::write(self.dir.join("known"), format!("{host} {}", fs::read_to_string(self.dir.join("user.pub")).unwrap()))
            .unwrap();
    }

    /// `multirail cp` in the near host's directory.
    pub fn cp(&self) -> Command {
        let mut command = Command::new(MULTIRAIL);
        let ssh = format!("ssh -F '{}'", self.dir.join("ssh.conf").display());
        command.args(["cp", "--ssh", &ssh]).current_dir(self.near(""));
        command
    }

    /// A shell in the near host's directory, whose `ssh` knows the hosts of the test.
    pub fn shell(&self, commands: &str) -> Command {
        self.shell_of(Command::new("sh"), commands)
    }

    /// The same as a command that runs `sh`, such as one on a host of a lab.
    pub fn shell_of(&self, mut command: Command, commands: &str) -> Command {
        fs::create_dir_all(self.dir.join("near-bin")).unwrap();
        let (ssh, at) = (program("ssh").unwrap(), self.dir.display());
        self.script("near-bin/ssh", &format!("#!/bin/sh\nexec {} -F {at}/ssh.conf \"$@\"\n", ssh.display()));
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-ec", commands]).current_dir(self.near(""));
        command.env("PATH", format!("{at}/near-bin:{at}/bin:{path}"));
        command
    }

    /// Starts a copy to `far:big`, or from there, which takes seconds, and returns when it writes. The
    /// file is too short for its part to be kept for a later copy.
    pub fn start_big(&self, upload: bool, options: &[&str]) -> Child {
        let (from, to) = (self.near("big"), self.far("copy"));
        let (from, to) = if upload { (from, to) } else { (self.far("big"), self.near("copy")) };
        fs::create_dir(&to).unwrap();
        fs::write(from, vec![7; 6 << 20]).unwrap();
        let ends = if upload { ["big", "far:copy/"] } else { ["far:big", "copy/"] };
        let mut copy =
            self.cp().args(options).args(["--limit", "500k"]).args(ends).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the copy writes", || {
            assert!(copy.try_wait().unwrap().is_none(), "it ended by itself: {}", stderr_of(&mut copy));
            !names(&to).is_empty()
        });
        copy
    }

    /// The processes on `far`, with their command lines.
    pub fn processes(&self) -> Vec<(u32, Vec<u8>)> {
        let mark = self.mark();
        let all = fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse::<u32>().ok());
        let said = all.filter_map(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let is_far = environment.split(|b| *b == 0).any(|variable| variable == mark.as_bytes());
            let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            is_far.then_some((pid, command))
        });
        said.collect()
    }

    /// Waits until nothing runs on `far`, and checks that no program was left there.
    pub fn wait_until_far_is_idle(&self) {
        wait_until("nothing runs on far", || self.processes().is_empty());
        assert_eq!(names(&self.dir.join("tmp")), [""; 0], "temporary files");
        assert!(!names(&self.far("")).iter().any(|name| name.starts_with(".multirail-")), "a directory of a program");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        for (pid, _) in self.processes() {
            // SAFETY: the processes carry the mark of this test.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The path of a program of the system, also where it is in `sbin`.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{path}:/usr/sbin:/sbin");
    path.split(':').map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + GENEROUS;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The names in `dir`, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// All files below `dir` with their content, and directories, by path as bytes.
pub fn tree(dir: &Path) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().as_os_str().as_bytes().to_vec();
            match path.is_dir() {
                true => folders.push(path),
                false => all.push((name.clone(), Some(fs::read(&path).unwrap()))),
            }
            all.push((name, None));
        }
    }
    all.sort();
    all
}

pub fn signal(process: &Child, signal: i32) {
    // SAFETY: the process is a child, and not reaped yet.
    assert_eq!(unsafe { libc::kill(process.id() as i32, signal) }, 0);
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stderr_of(child: &mut Child) -> String {
    let mut text = String::new();
    let _ = std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut text);
    text
}

//! A server in a process of its own, whose memory, files and processor time can be seen.

use super::{bounded, runtime, token};
use multirail::bench::{BENCH, BenchRequest};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::{Session, request};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Says what the other process of a test does.
const CHILD: &str = "MULTIRAIL_TEST_CHILD";
/// Ticks a second of the times in /proc.
const TICKS_S: f64 = 100.0;

/// The other process: a test binary has an ignored test `child` that calls this. `others` are roles
/// beside `serve`.
pub fn child(others: impl FnOnce(&str, &str)) {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (role, argument) = what.split_once(' ').unwrap_or((&what, ""));
    if role != "serve" {
        return others(role, argument);
    }
    let session = super::plaintext().token(token()).give_up_after(Duration::from_secs(2));
    let listen = ListenConfig::new(([127, 0, 0, 1], 0), session);
    let serving = Server::new(listen, argument.into()).memory_limit(64 << 20).serve(|address| {
        println!("\nlistening {address}");
        std::io::stdout().flush().unwrap();
    });
    runtime().block_on(serving).unwrap();
}

/// Starts the other process, with a limit of open files.
pub fn spawn_child(what: &str, max_files: Option<u64>, stderr: Stdio) -> Child {
    let mut command = match max_files {
        None => Command::new(std::env::current_exe().unwrap()),
        Some(files) => {
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""))
                .arg(std::env::current_exe().unwrap());
            command
        }
    };
    let command = command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CHILD, what);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap()
}

/// A server, which ends when the test ends.
pub struct Served {
    child: Child,
    pub address: SocketAddr,
    errors: Arc<Mutex<String>>,
}

impl Served {
    pub fn start(max_files: Option<u64>) -> Self {
        Self::start_in(Path::new("/nonexistent"), max_files)
    }

    /// Serves the folder `root`.
    pub fn start_in(root: &Path, max_files: Option<u64>) -> Self {
        let mut child = spawn_child(&format!("serve {}", root.display()), max_files, Stdio::piped());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("listening ")?.parse().ok());
        let (stderr, errors) = (child.stderr.take().unwrap(), Arc::<Mutex<String>>::default());
        let kept = errors.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { child, address: address.expect("the server tells where it listens"), errors }
    }

    /// What the server has printed on stderr.
    pub fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    pub fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// The processor time that the server has used.
    pub fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, behind) = stat.rsplit_once(')').unwrap();
        let ticks = |field: usize| behind.split_whitespace().nth(field).unwrap().parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / TICKS_S
    }

    /// Checks that a client with the token is served: a message makes a round trip.
    pub async fn is_served(&self) {
        let config = super::plaintext().token(token());
        let address = self.address.to_string();
        let connecting = Session::connect(&address, config);
        let mut session = bounded("a good client to be let in", 20, connecting).await.expect("let in");
        let echo =
            BenchRequest::Echo { message_bytes: 1000, rounds: 1, strategy: "adaptive".into(), fragment_bytes: 1 };
        request::send_request(&mut session, BENCH, &echo).await.unwrap();
        let message = super::pattern(1, 1000);
        session.send(&message).await.unwrap();
        let mut back = vec![0; 1000];
        bounded("the echo", 10, session.recv(&mut back)).await.unwrap();
        super::assert_same(&back, &message, "an echo");
        session.close().await.unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A new empty folder, removed when it is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("multirail-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

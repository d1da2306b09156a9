//! The hosts of a lab, and the commands that the tests run on them.

use multirail_lab::{Lab, Ports, Rate};
use multirail_testing::{Requirement, skip};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");
/// How long a test waits for a condition before it fails.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Hosts with several ports, and a directory of files. Both are removed with the value.
pub struct Net {
    pub lab: Lab,
    pub dir: PathBuf,
}

impl Net {
    /// Returns none where labs cannot be made or the kernel has no type information. The test is
    /// then reported as skipped.
    pub fn new(name: &str, hosts: &[&str], ports: usize) -> Option<Self> {
        if let Err(why) = Lab::supported() {
            skip(Requirement::Namespaces, why);
            return None;
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            skip(Requirement::Bpf, "this kernel has no type information for BPF");
            return None;
        }
        let rates = vec![Rate::parse_optional("100mbit").unwrap(); ports];
        let lab = Lab::temporary(&Ports::default().topology(hosts, &rates).unwrap()).unwrap();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("place-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let net = Self { lab, dir };
        net.token("token");
        let mut peers = String::from("# all hosts\n");
        for host in hosts {
            let macs: Vec<String> = net.ports(host).into_iter().map(|(_, mac)| mac).collect();
            peers.push_str(&format!("{}\n", macs.join(" ")));
        }
        fs::write(net.dir.join("peers"), peers).unwrap();
        for host in hosts {
            net.wait_for_addresses(host);
        }
        Some(net)
    }

    /// Creates the file of a token.
    pub fn token(&self, name: &str) -> String {
        let path = self.path(name);
        assert!(Command::new(MULTIRAIL).args(["--json", "token", &path]).output().unwrap().status.success());
        path
    }

    /// Waits for the end of duplicate address detection, so that addresses do not change later.
    pub fn wait_for_addresses(&self, host: &str) {
        let begun = Instant::now();
        let tentative = || self.run(host, Command::new("ip").args(["-6", "address", "show", "tentative"])).stdout;
        while !tentative().is_empty() {
            assert!(begun.elapsed() < TIMEOUT, "addresses stay tentative");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The names and addresses of a host's ports.
    pub fn ports(&self, host: &str) -> Vec<(String, String)> {
        let mut ports: Vec<_> = self.lab.ports().unwrap().into_iter().filter(|port| port.host == host).collect();
        ports.sort_by_key(|port| port.number);
        ports.into_iter().map(|port| (port.port, port.mac)).collect()
    }

    pub fn names(&self, host: &str) -> String {
        self.ports(host).into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Runs a command on a host, with the mounts of this process.
    pub fn run(&self, host: &str, command: &mut Command) -> Output {
        self.lab.run_in(host, || command.output().unwrap()).unwrap()
    }

    pub fn place(&self, host: &str, args: &[&str]) -> Output {
        self.run(host, Command::new(MULTIRAIL).args(["--json", "place"]).args(args))
    }

    pub fn up_by_file(&self, host: &str) -> Output {
        self.place(host, &["up", "--ports", &self.names(host), "--peers", &self.path("peers")])
    }

    pub fn up_by_exchange(&self, host: &str) -> Output {
        self.place(host, &["up", "--ports", &self.names(host), "--token-file", &self.path("token")])
    }

    pub fn status(&self, host: &str) -> Value {
        let output = self.place(host, &["status"]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until a host's status is as wanted, and returns it.
    pub fn wait(&self, host: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status(host);
            if wanted(&status) {
                return status;
            }
            assert!(begun.elapsed() < TIMEOUT, "{host}: not {what}: {status:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Transfers this many bytes, and checks that all arrived.
    pub fn transfer(&self, from: &str, to: &str, address: IpAddr, bytes: usize) {
        let listener = self.lab.run_in(to, || TcpListener::bind((address, 0)).unwrap()).unwrap();
        let target = listener.local_addr().unwrap();
        let receiver = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut got, mut buffer) = (0, vec![0; 1 << 16]);
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    n => got += n,
                }
            }
            stream.write_all(&[1]).unwrap();
            got
        });
        let mut stream = self.lab.run_in(from, || TcpStream::connect(target).unwrap()).unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(receiver.join().unwrap(), bytes);
    }

    pub fn address(&self, host: &str) -> IpAddr {
        self.lab.address(host, 0).unwrap().into()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let hosts: Vec<String> = self.lab.hosts().map(str::to_owned).collect();
        for host in hosts {
            self.place(&host, &["down"]);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn usable_ports(status: &Value) -> Vec<u64> {
    let peers = status["peers"].as_array().unwrap();
    peers.iter().flat_map(|peer| peer["usable_ports"].as_array().unwrap()).map(|port| port.as_u64().unwrap()).collect()
}

pub fn bytes_by_port(status: &Value) -> Vec<u64> {
    status["ports"].as_array().unwrap().iter().map(|port| port["bytes"].as_u64().unwrap()).collect()
}

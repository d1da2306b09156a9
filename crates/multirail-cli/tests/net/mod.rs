//! What tests of `multirail place` need: hosts of a lab with ports, and a look at what placement says.

use multirail_lab::{Lab, Ports, Rate};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub const MULTIRAIL: &str = env!("CARGO_BIN_EXE_multirail");
/// Only a test that fails waits for so long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Hosts with ports, and files to work with; both go.
pub struct Net {
    pub lab: Lab,
    pub dir: PathBuf,
}

impl Net {
    /// None, and the reason printed, where labs cannot be made or the kernel has no BPF for it.
    pub fn new(name: &str, hosts: &[&str], ports: usize) -> Option<Self> {
        if let Err(why) = Lab::supported() {
            let _ = writeln!(std::io::stderr(), "skipped: {why}");
            return None;
        }
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            let _ = writeln!(std::io::stderr(), "skipped: this kernel has no type information for BPF");
            return None;
        }
        let rates = vec![Rate::parse_optional("100mbit").unwrap(); ports];
        let lab = Lab::temporary(&Ports::default().topology(hosts, &rates).unwrap()).unwrap();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("place-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("token"), "a token of these tests").unwrap();
        let net = Self { lab, dir };
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

    /// Addresses of IPv6 that the kernel still looks for duplicates of would be others later.
    pub fn wait_for_addresses(&self, host: &str) {
        let begun = Instant::now();
        let tentative = || self.run(host, Command::new("ip").args(["-6", "address", "show", "tentative"])).stdout;
        while !tentative().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "addresses stay tentative");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Names and addresses.
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

    /// On a host, with the machine's own mounts.
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

    /// Waits until the status is as wanted.
    pub fn wait(&self, host: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status(host);
            if wanted(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "{host}: not {what}: {status:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends so many bytes, and returns when all have arrived and were counted.
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

//! The state of a host, to compare it before and after placement.

use crate::net::Net;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

impl Net {
    /// All state of a host that placement could change.
    pub fn snapshot(&self, host: &str) -> String {
        let script = r#"
            ip -d link; ip address; ip rule; ip route show table all; ip -6 route show table all; tc qdisc
            for port in $(ls /sys/class/net); do tc filter show dev $port egress; tc filter show dev $port ingress; done
            sysctl -a 2>/dev/null | grep '^net\.' | grep -v nf_conntrack_count"#;
        let output = self.lab.command(host, "bash").unwrap().args(["-c", script]).output().unwrap();
        let pins = self.pins(host);
        format!("{}{:?}{:?}", String::from_utf8(output.stdout).unwrap(), self.files(host), pins.exists())
    }

    /// The kernel's cookie of a host's network namespace.
    pub fn cookie(&self, host: &str) -> u64 {
        self.lab
            .run_in(host, || {
                let socket = TcpListener::bind("127.0.0.1:0").unwrap();
                let (mut cookie, mut length) = (0_u64, 8);
                // SAFETY: both pointers are valid, and `length` is the size of the cookie.
                let result = unsafe {
                    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
                    libc::getsockopt(
                        fd,
                        libc::SOL_SOCKET,
                        libc::SO_NETNS_COOKIE,
                        (&raw mut cookie).cast(),
                        &raw mut length,
                    )
                };
                assert_eq!(result, 0);
                cookie
            })
            .unwrap()
    }

    /// The directory of a host's pinned BPF objects.
    pub fn pins(&self, host: &str) -> PathBuf {
        Path::new("/sys/fs/bpf/multirail-place").join(self.cookie(host).to_string())
    }

    /// The files of a host in /run/multirail.
    pub fn files(&self, host: &str) -> Vec<String> {
        let begins = format!("place-{}.", self.cookie(host));
        let names = fs::read_dir("/run/multirail").into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| name.starts_with(&begins)).collect()
    }
}

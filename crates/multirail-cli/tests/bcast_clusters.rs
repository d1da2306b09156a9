//! `multirail bcast` without clusters in a test network: a wrong guess at the clusters is corrected while
//! data moves.

#[allow(dead_code)]
mod common;

use common::{MULTIRAIL, Place, listening, stderr};
use multirail_lab::{Clusters, Lab};
use multirail_testing::{Requirement, skip};
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::process::Stdio;

const FILE_BYTES: usize = 12_000_000;
const SITES: [&str; 3] = ["a", "b", "c"];
const HOSTS_A_SITE: usize = 3;

/// Hosts that have, besides the address of their site, one in a subnet that all sites share.
struct Misleading {
    lab: Lab,
    hosts: Vec<String>,
}

impl Misleading {
    fn up(link: &str) -> Self {
        let clusters = Clusters::new(&SITES.map(|site| (site, HOSTS_A_SITE))).link_default("40mbit".parse().ok());
        let links = ["a-b", "a-c", "b-c"].map(|pair| format!("{pair}={link}"));
        let clusters = links.iter().fold(clusters, |clusters, link| clusters.link(link.parse().unwrap()));
        let lab = Lab::temporary(&clusters.topology().unwrap()).unwrap();
        // One host of each site after the other.
        let hosts = (0..HOSTS_A_SITE).flat_map(|rank| SITES.map(|site| format!("{site}{rank}"))).collect();
        let this = Self { lab, hosts };
        let routers = this.routers();
        for (number, host) in this.hosts.iter().enumerate() {
            let address = format!("{}/32", this.address(number));
            this.ip(host, &["address", "add", &address, "dev", "lo"]);
            for (site, router) in SITES.iter().zip(&routers) {
                let via = match host.strip_prefix(site) {
                    Some(_) => this.lab.cluster_address(host).unwrap().to_string(),
                    None => this.router_towards(site, &host[..1]),
                };
                this.ip(router, &["route", "add", &address, "via", &via]);
            }
        }
        this
    }

    /// The routers of the sites, in their order.
    fn routers(&self) -> Vec<String> {
        let topology = Clusters::new(&SITES.map(|site| (site, HOSTS_A_SITE))).link_default("40mbit".parse().ok());
        topology.topology().unwrap().clusters.iter().map(|cluster| cluster.router()).collect()
    }

    /// The address of site `to`'s router on its link with site `from`.
    fn router_towards(&self, from: &str, to: &str) -> String {
        let pair = if from < to { (from, to) } else { (to, from) };
        let rail = [("a", "b"), ("a", "c"), ("b", "c")].iter().position(|known| *known == pair).unwrap();
        let router = &self.routers()[SITES.iter().position(|site| *site == to).unwrap()];
        self.lab.address(router, rail).unwrap().to_string()
    }

    fn address(&self, number: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 66, 0, number as u8 + 1)
    }

    fn ip(&self, host: &str, args: &[&str]) {
        let done = self.lab.command(host, "ip").unwrap().args(args).output().unwrap();
        assert!(done.status.success(), "{host}: {args:?}: {}", stderr(&done));
    }

    /// Broadcasts from the first host; returns the summary.
    fn broadcast(&self, place: &mut Place) -> Value {
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at * 7 + at / 1000) as u8).collect();
        fs::write(place.path("src"), &bytes).unwrap();
        place.token();
        let command = |host: &str, args: &[&str]| {
            let mut command = self.lab.command(host, MULTIRAIL).unwrap();
            command.args(args).env("MULTIRAIL_KEYS", common::keys()).current_dir(&place.dir);
            command
        };
        let mut addresses = Vec::new();
        let mut servers = Vec::new();
        for (number, host) in self.hosts.iter().enumerate().skip(1) {
            fs::create_dir_all(place.path(host)).unwrap();
            let listen = format!("{}:7717", self.address(number));
            let serve = ["--json", "serve", "--listen", &listen, "--root", host, "--token-file", "token"];
            let mut server = command(host, &serve).stdout(Stdio::piped()).spawn().unwrap();
            addresses.push(listening(&mut server));
            servers.push(server);
        }
        place.servers.extend(servers);
        let bcast =
            ["--json", "bcast", "src", "--to", "copy", "--hosts", &addresses.join(","), "--token-file", "token"];
        let done = command(&self.hosts[0], &bcast).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        for host in &self.hosts[1..] {
            assert!(fs::read(place.path(host).join("copy")).unwrap() == bytes, "{host}");
        }
        serde_json::from_slice(&done.stdout).unwrap()
    }

    /// Asserts that the summary has the hosts of each site, and only these, in one cluster.
    fn assert_found(&self, summary: &Value) {
        let clusters: Vec<&str> = std::iter::once(&summary["root_cluster"])
            .chain(summary["hosts"].as_array().unwrap().iter().map(|host| &host["cluster"]))
            .map(|cluster| cluster.as_str().unwrap())
            .collect();
        for (one, its) in self.hosts.iter().zip(&clusters) {
            for (other, others) in self.hosts.iter().zip(&clusters) {
                assert_eq!(one[..1] == other[..1], its == others, "{one} and {other}: {clusters:?}");
            }
        }
        println!("{} s, {} copies between clusters", summary["seconds"], summary["wan_copies"]);
    }
}

#[test]
fn one_subnet_over_three_sites_is_told_apart_by_round_trips() {
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    let net = Misleading::up("40mbit,delay=10ms");
    let summary = net.broadcast(&mut Place::new("round-trips"));
    net.assert_found(&summary);
}

#[test]
fn one_subnet_over_three_near_sites_is_told_apart_by_the_queues_of_the_broadcast() {
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    let net = Misleading::up("20mbit");
    let summary = net.broadcast(&mut Place::new("queues"));
    net.assert_found(&summary);
}

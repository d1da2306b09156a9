//! Ways to build a topology: from names and rates, from TOML, and for hosts with several ports.

use crate::error::{Error, Result};
use crate::spec::rate::Rate;
use crate::spec::topology::{LabHost, LabRail, Ports, Topology};
use std::path::Path;

impl Topology {
    /// Builds and checks a topology of hosts and rails.
    ///
    /// # Errors
    /// [`Error::BadName`] or [`Error::BadTopology`] if no lab can be made of it.
    pub fn new(hosts: Vec<LabHost>, rails: Vec<LabRail>) -> Result<Self> {
        let topology = Self { hosts, rails, ..Self::default() };
        topology.check()?;
        Ok(topology)
    }

    /// Builds a topology in which each rail joins all hosts. A rail is given as its rate, such as
    /// `100mbit`, or as `-` for no limit.
    ///
    /// # Errors
    /// [`Error::BadRate`], [`Error::BadName`] or [`Error::BadTopology`].
    pub fn simple<H: AsRef<str>, R: AsRef<str>>(hosts: &[H], rails: &[R]) -> Result<Self> {
        let rail = |rate: &R| Ok(LabRail::new(Rate::parse_optional(rate.as_ref())?));
        Self::new(named(hosts), rails.iter().map(rail).collect::<Result<_>>()?)
    }

    /// Parses and checks a topology in TOML.
    ///
    /// # Errors
    /// [`Error::TopologyFile`] if the text is not valid TOML for a topology, [`Error::BadName`] or
    /// [`Error::BadTopology`] if no lab can be made of it.
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::from_toml_named(text, "<text>")
    }

    /// Reads and checks a topology in a TOML file.
    ///
    /// # Errors
    /// [`Error::TopologyFile`] if the file cannot be read, and those of [`Topology::from_toml`].
    pub fn from_file(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::TopologyFile { path: name.clone(), source: error.into() })?;
        Self::from_toml_named(&text, &name)
    }

    fn from_toml_named(text: &str, path: &str) -> Result<Self> {
        let topology: Self = toml::from_str(text).map_err(|error| Error::TopologyFile {
            path: path.to_owned(),
            source: error.to_string().trim_end().into(),
        })?;
        topology.check()?;
        Ok(topology)
    }
}

impl Ports {
    /// Ports of separate switches, of which only `eth0` has an address.
    pub const fn new() -> Self {
        Self { trunk: false, subnets: false }
    }

    /// Whether links without a rate limit join the switches in a row.
    #[must_use]
    pub const fn with_trunk(mut self, trunk: bool) -> Self {
        self.trunk = trunk;
        self
    }

    /// Whether every port has an address.
    #[must_use]
    pub const fn with_subnets(mut self, subnets: bool) -> Self {
        self.subnets = subnets;
        self
    }

    /// Builds a topology of hosts that all have a port of each of these rates, in each direction.
    ///
    /// # Errors
    /// [`Error::BadTopology`] if there are more than 64 ports, or if some have a rate and some have
    /// none; [`Error::BadName`].
    pub fn topology<H: AsRef<str>>(self, hosts: &[H], rates: &[Option<Rate>]) -> Result<Topology> {
        let topology = Topology {
            hosts: named(hosts),
            rails: rates.iter().copied().map(LabRail::new).collect(),
            ports: Some(self),
            ..Topology::default()
        };
        topology.check()?;
        Ok(topology)
    }
}

fn named<H: AsRef<str>>(hosts: &[H]) -> Vec<LabHost> {
    hosts.iter().map(|name| LabHost::new(name.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_simple_topology_each_rail_joins_all_hosts() {
        let topology = Topology::simple(&["a", "b", "c"], &["100mbit", "-"]).unwrap();
        assert_eq!(topology.hosts_on(1), [0, 1, 2]);
        assert_eq!(topology.rails[0].rate_of("b").unwrap().mbit_s(), 100.0);
        assert_eq!(topology.rails[1].rate, None);
    }

    #[test]
    fn toml_with_every_option_is_parsed_again() {
        let text = "[[host]]\nname='a'\nsysctl={'net.ipv4.tcp_rmem'='4096 1 2'}\n[[host]]\nname='b'\n[[host]]\nname='c'\n\
                    [[rail]]\nrate='1gbit'\ndelay='10ms'\njitter='500us'\nloss='0.1%'\nqueue='64k'\nmtu=9000\nipv6=false\nhosts=['a','c']\nrates={c='10mbit'}\n";
        let topology = Topology::from_toml(text).unwrap();
        assert_eq!(topology.hosts_on(0), [0, 2]);
        assert_eq!(topology.rails[0].rate_of("c").unwrap().mbit_s(), 10.0);
        let again = Topology::from_toml(&toml::to_string(&topology).unwrap()).unwrap();
        assert_eq!(again, topology);
    }
}

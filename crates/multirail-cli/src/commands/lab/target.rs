//! The target of `lab set`: a rail, or a port of a host.

use std::str::FromStr;

/// A rail, written `1` or `rail1`, or a port, written `h2:eth3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetTarget {
    Rail(usize),
    Port { host: String, port: String },
}

impl FromStr for SetTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((host, port)) = text.split_once(':') {
            return Ok(Self::Port { host: host.to_owned(), port: port.to_owned() });
        }
        let index = text.strip_prefix("rail").unwrap_or(text);
        index
            .parse()
            .map(Self::Rail)
            .map_err(|_| "write 1 or rail1 for a rail, or h2:eth3 for a port of a host".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_and_ports_are_distinguished() {
        assert_eq!("1".parse(), Ok(SetTarget::Rail(1)));
        assert_eq!("rail12".parse(), Ok(SetTarget::Rail(12)));
        assert_eq!("h2:eth3".parse(), Ok(SetTarget::Port { host: "h2".into(), port: "eth3".into() }));
        assert!("eth3".parse::<SetTarget>().unwrap_err().contains("h2:eth3"));
    }
}

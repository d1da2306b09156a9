//! The settings of a link between two clusters.

use crate::error::{Error, Result};
use crate::spec::names;
use crate::spec::rate::Rate;
use crate::spec::topology::{LabRail, Topology};
use crate::spec::wan::Wan;
use std::fmt;
use std::str::FromStr;

/// New settings of a link between two clusters.
///
/// Written `a-b=80mbit` for both directions or `a>b=8mbit` for one. `delay`, `jitter`, `loss` and
/// `queue` always apply to both directions: `a-b=80mbit,delay=10ms`, `a-b=delay=50ms`.
///
/// ```
/// let setting: multirail_lab::LinkSetting = "a-b=80mbit,delay=10ms".parse()?;
/// assert!(setting.is_between("b", "a"));
/// # Ok::<(), multirail_lab::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSetting {
    /// The cluster that sends.
    from: String,
    /// The cluster that receives.
    to: String,
    /// Whether the rate is also that of the other direction.
    both_ways: bool,
    /// The new rate. `None` leaves the rate unchanged.
    rate: Option<Rate>,
    /// The new properties. A `None` among them leaves that property unchanged.
    wan: Wan,
}

impl LinkSetting {
    /// Whether the setting is for the link between these two clusters, in either order.
    pub fn is_between(&self, one: &str, other: &str) -> bool {
        (self.from == one && self.to == other) || (self.from == other && self.to == one)
    }

    /// Whether the setting has a delay, a jitter or a loss.
    pub(crate) fn is_wan(&self) -> bool {
        self.wan.is_wan()
    }

    /// The index of the rail that is the link.
    ///
    /// # Errors
    /// [`Error::BadLink`] if there is no such link.
    pub(crate) fn rail(&self, topology: &Topology) -> Result<usize> {
        let known: Vec<&str> = topology.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        let bad = |reason: String| Error::BadLink { input: self.to_string(), reason };
        if known.is_empty() {
            return Err(bad("there are no clusters".into()));
        }
        for name in [&self.from, &self.to] {
            if !known.contains(&name.as_str()) {
                return Err(bad(format!("there is no cluster {name:?}, only {}", known.join(", "))));
            }
        }
        let ends = [names::router(&self.from), names::router(&self.to)];
        let rail = topology.rails.iter().position(|rail| ends.iter().all(|end| rail.hosts.contains(end)));
        rail.filter(|_| self.from != self.to).ok_or_else(|| bad("a link is between two clusters".into()))
    }

    /// Applies the setting to the rail that is the link.
    pub(crate) fn apply(&self, rail: &mut LabRail) {
        if let Some(rate) = self.rate {
            rail.rates.insert(names::router(&self.from), rate);
            if self.both_ways {
                rail.rates.insert(names::router(&self.to), rate);
            }
        }
        rail.set_wan(self.wan.or(rail.wan()));
    }
}

impl FromStr for LinkSetting {
    type Err = Error;

    fn from_str(input: &str) -> Result<Self> {
        let bad = |reason: &str| Error::BadLink { input: input.to_owned(), reason: reason.to_owned() };
        let (ends, values) = input.trim().split_once('=').ok_or_else(|| bad("there is no `=`"))?;
        let at = ends.find(['-', '>']).ok_or_else(|| bad("there is no `-` and no `>` between clusters"))?;
        let (from, to, both_ways) = (ends[..at].trim(), ends[at + 1..].trim(), ends[at..].starts_with('-'));
        names::check_host(from)?;
        names::check_host(to)?;
        let mut link = Self { from: from.to_owned(), to: to.to_owned(), both_ways, rate: None, wan: Wan::default() };
        for value in values.split(',') {
            match value.split_once('=') {
                None => link.rate = Some(value.parse()?),
                Some(_) if !both_ways => return Err(bad("only a rate can differ by direction: write `-`")),
                Some(("delay", delay)) => link.wan.delay = Some(delay.parse()?),
                Some(("jitter", jitter)) => link.wan.jitter = Some(jitter.parse()?),
                Some(("loss", loss)) => link.wan.loss = Some(loss.parse()?),
                Some(("queue", queue)) => link.wan.queue = Some(queue.parse()?),
                Some(_) => return Err(bad("beside a rate, a link has delay, jitter, loss and queue")),
            }
        }
        Ok(link)
    }
}

impl fmt::Display for LinkSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, both_ways, rate, wan } = self;
        let values = [
            rate.map(|rate| rate.to_string()),
            wan.delay.map(|delay| format!("delay={delay}")),
            wan.jitter.map(|jitter| format!("jitter={jitter}")),
            wan.loss.map(|loss| format!("loss={loss}")),
            wan.queue.map(|queue| format!("queue={queue}")),
        ];
        let values: Vec<String> = values.into_iter().flatten().collect();
        write!(f, "{from}{}{to}={}", if *both_ways { '-' } else { '>' }, values.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_again_and_invalid_ones_are_refused() {
        for text in
            ["a-b=80mbit", "a>b=8mbit", "x_1-y=1.5gbit,delay=10ms,jitter=1ms,loss=0.1%,queue=64k", "a-b=delay=5ms"]
        {
            let link: LinkSetting = text.parse().unwrap();
            assert_eq!(link.to_string(), text);
        }
        for text in
            ["", "a-b", "ab=8mbit", "-b=8mbit", "a>=8mbit", "a-b=", "a-b=fast", "a>b=8mbit,delay=1ms", "a-b=speed=1"]
        {
            assert!(text.parse::<LinkSetting>().is_err(), "{text:?}");
        }
    }
}

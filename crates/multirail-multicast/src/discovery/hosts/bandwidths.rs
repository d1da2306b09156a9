//! A file with the rates of links between clusters and of hosts, for the methods that plan with them.

use super::Entry;
use super::clusters::{Clustering, Known};
use multirail_proto::multicast::Bandwidths;
use multirail_proto::units::parse_rate_mbit_s;

/// Stands for all hosts without an access rate of their own.
const ALL_OTHERS: &str = "*";

/// Why a file of rates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthsError {
    /// A line has another form.
    #[error(
        "line {line}: {text:?} is not a rate of a link or a host; write A-B=RATE for both directions of a link, A>B=RATE for one, or HOST=RATE, for example a-b=80mbit"
    )]
    Line {
        /// The line, from 1.
        line: usize,
        /// The text.
        text: String,
    },
    /// No such link or host exists.
    #[error("line {line}: {text:?} is neither a link between two clusters nor a host; the clusters are {clusters}")]
    Unknown {
        /// The line, from 1.
        line: usize,
        /// The text.
        text: String,
        /// The names that exist, separated by commas.
        clusters: String,
    },
    /// A link occurs twice.
    #[error("line {line}: the link {from}>{to} already has a rate; remove one of them")]
    Twice {
        /// The line, from 1.
        line: usize,
        /// The sending cluster.
        from: String,
        /// The receiving cluster.
        to: String,
    },
    /// A text is a link and a host.
    #[error("line {line}: {text:?} is a link and a host; write A>B=RATE for the link, or HOST:PORT=RATE for the host")]
    Ambiguous {
        /// The line, from 1.
        line: usize,
        /// The text.
        text: String,
    },
    /// A host occurs twice.
    #[error("line {line}: {host} already has an access rate; remove one of them")]
    TwiceAccess {
        /// The line, from 1.
        line: usize,
        /// The host, or `*`.
        host: String,
    },
    /// A host has no rate, but another one has.
    #[error(
        "{host} has no access rate, but other hosts have one; add a line {host}=RATE, or *=RATE for all hosts without one"
    )]
    MissingAccess {
        /// The host.
        host: String,
    },
    /// A link has no rate.
    #[error("the link {from}>{to} has no rate; add a line {from}>{to}=RATE")]
    Missing {
        /// The sending cluster.
        from: String,
        /// The receiving cluster.
        to: String,
    },
}

/// Parses the rates of links and hosts. `hosts` are in the order of `clusters`, the root first.
///
/// Items `A-B=RATE` (both directions) and `A>B=RATE` give the rates of links; every link between two
/// clusters must occur. Items `HOST=RATE` give the rate between a host and other clusters, in each
/// direction, and `*=RATE` that of all hosts without an item. Either no host has such a rate, or all
/// have. A line may have several items; `#` begins a comment.
///
/// # Errors
///
/// [`BandwidthsError`] names the line and what is wrong with it, or the link or host that is missing.
pub fn parse_bandwidths(text: &str, clusters: &Clustering, hosts: &[Entry]) -> Result<Bandwidths, BandwidthsError> {
    let names = &clusters.names;
    let known = Known::new(hosts);
    let mut links: Vec<Vec<Option<f64>>> = vec![vec![None; names.len()]; names.len()];
    let mut access: Vec<Option<f64>> = vec![None; hosts.len()];
    let mut all_others = None;
    for (number, content) in text.lines().enumerate() {
        let line = number + 1;
        for text in content.split('#').next().unwrap_or_default().split_whitespace() {
            let wrong = || BandwidthsError::Line { line, text: text.to_owned() };
            let (what, rate) = text.split_once('=').ok_or_else(wrong)?;
            let bytes_s = parse_rate_mbit_s(rate).map_err(|_| wrong())? * 1e6 / 8.0;
            match (parse_ends(what, names), known.find(what)) {
                (Some(_), Some(_)) => return Err(BandwidthsError::Ambiguous { line, text: what.to_owned() }),
                (Some((from, to, both)), None) => {
                    for (from, to) in [(from, to), (to, from)].into_iter().take(if both { 2 } else { 1 }) {
                        if links[from][to].replace(bytes_s).is_some() {
                            let (from, to) = (names[from].clone(), names[to].clone());
                            return Err(BandwidthsError::Twice { line, from, to });
                        }
                    }
                }
                (None, host) => {
                    let rate = match host {
                        Some(host) => &mut access[host],
                        None if what == ALL_OTHERS => &mut all_others,
                        None => {
                            let (text, clusters) = (what.to_owned(), names.join(", "));
                            return Err(BandwidthsError::Unknown { line, text, clusters });
                        }
                    };
                    if rate.replace(bytes_s).is_some() {
                        return Err(BandwidthsError::TwiceAccess { line, host: what.to_owned() });
                    }
                }
            }
        }
    }
    Ok(Bandwidths {
        link_bytes_s: every_link(&links, names)?,
        access_bytes_s: every_access(access, all_others, hosts)?,
    })
}

/// The rates of links as a matrix. Those within a cluster are 0 and not used.
fn every_link(links: &[Vec<Option<f64>>], names: &[String]) -> Result<Vec<Vec<f64>>, BandwidthsError> {
    let link = |from: usize, to: usize| match links[from][to] {
        Some(rate) => Ok(rate),
        None if from == to => Ok(0.0),
        None => Err(BandwidthsError::Missing { from: names[from].clone(), to: names[to].clone() }),
    };
    let all = 0..names.len();
    all.clone().map(|from| all.clone().map(|to| link(from, to)).collect()).collect()
}

/// The access rates of all hosts; `None` if none is given.
fn every_access(
    given: Vec<Option<f64>>,
    all_others: Option<f64>,
    hosts: &[Entry],
) -> Result<Option<Vec<f64>>, BandwidthsError> {
    if all_others.is_none() && given.iter().all(Option::is_none) {
        return Ok(None);
    }
    let rates = given
        .into_iter()
        .zip(hosts)
        .map(|(rate, host)| rate.or(all_others).ok_or_else(|| BandwidthsError::MissingAccess { host: host.shown() }));
    rates.collect::<Result<_, _>>().map(Some)
}

/// The two clusters of `a-b` or `a>b`, and whether both directions are meant. A name may contain
/// `-`.
fn parse_ends(text: &str, names: &[String]) -> Option<(usize, usize, bool)> {
    let find = |name: &str| names.iter().position(|n| n == name);
    let ends = |from: &str, to: &str| Some((find(from)?, find(to)?)).filter(|(from, to)| from != to);
    if let Some((from, to)) = text.split_once('>') {
        return ends(from, to).map(|(from, to)| (from, to, false));
    }
    let mut cuts = text.match_indices('-').filter_map(|(at, _)| ends(&text[..at], &text[at + 1..]));
    let (from, to) = cuts.next()?;
    // Names that can be read in two ways need `>`.
    cuts.next().is_none().then_some((from, to, true))
}

#[cfg(test)]
mod tests {
    use super::super::parse_list;
    use super::*;
    use proptest::prelude::*;

    fn clusters(names: &[&str]) -> Clustering {
        Clustering::from_names(names.iter().map(|n| (*n).to_owned()))
    }

    #[test]
    fn links() {
        let three = clusters(&["a", "b", "c-d"]);
        let parse = |text: &str| parse_bandwidths(text, &three, &[]);
        let found = parse("a-b=80mbit # near\na-c-d=8mbit b>c-d=16mbit\nc-d>b=1gbit").unwrap();
        assert_eq!(found.link_bytes_s, [vec![0.0, 1e7, 1e6], vec![1e7, 0.0, 2e6], vec![1e6, 1.25e8, 0.0]]);
        assert_eq!(found.access_bytes_s, None);
        let says = |text: &str| parse(text).unwrap_err().to_string();
        assert!(says("a-b=fast").starts_with("line 1: \"a-b=fast\" is not a rate"));
        assert!(says("a-b=0").starts_with("line 1: \"a-b=0\" is not a rate"));
        assert!(says("\na-b").starts_with("line 2: \"a-b\" is not a rate"));
        assert!(says("a-x=1mbit").contains("nor a host; the clusters are a, b, c-d"));
        assert!(says("a-a=1mbit").contains("is neither a link between two clusters"));
        assert!(says("a-b=1mbit\nb>a=1mbit").starts_with("line 2: the link b>a already has a rate"));
        assert!(says("a-b=1mbit").starts_with("the link a>c-d has no rate; add"));
        assert_eq!(parse_bandwidths("", &clusters(&["a"]), &[]).unwrap().link_bytes_s, [[0.0]]);
        let ambiguous = clusters(&["a", "a-a", "b"]);
        assert!(parse_bandwidths("a-a-a=1mbit", &ambiguous, &[]).is_err(), "a and a-a, or a-a and a");
    }

    #[test]
    fn hosts() {
        let hosts = parse_list("self,node-1,[fd00::1]:7,y:1,y:2").unwrap();
        let two = clusters(&["a", "b"]);
        let parse = |text: &str| parse_bandwidths(&format!("a-b=8mbit\n{text}"), &two, &hosts);
        let access = |text: &str| parse(text).unwrap().access_bytes_s.unwrap();
        assert_eq!(access("*=8mbit"), [1e6; 5]);
        assert_eq!(access("node-1=16mbit *=8mbit\n[fd00::1]:7=24mbit"), [1e6, 2e6, 3e6, 1e6, 1e6]);
        assert_eq!(access("self=1mbit NODE-1=2mbit fd00::1=3mbit y:1=4mbit y:2=5mbit")[3..], [5e5, 6.25e5]);
        let says = |text: &str| parse(text).unwrap_err().to_string();
        assert!(says("self=1mbit").starts_with("node-1 has no access rate, but other hosts have one; add a line"));
        assert!(says("*=1mbit *=2mbit").starts_with("line 2: * already has an access rate"));
        assert!(says("*=1mbit\nfd00::1=1mbit [fd00::1]:7=1mbit").starts_with("line 3: [fd00::1]:7 already has"));
        assert!(says("y=1mbit").starts_with("line 2: \"y\" is neither"), "two hosts have the name");
        assert!(says("node-1=-").starts_with("line 2: \"node-1=-\" is not a rate"));
        let both = parse_list("a-b").unwrap();
        let text = parse_bandwidths("a-b=1mbit", &two, &both).unwrap_err().to_string();
        assert!(text.starts_with("line 1: \"a-b\" is a link and a host; write A>B=RATE"), "{text}");
        let clear = parse_bandwidths("a>b=1mbit b>a=1mbit a-b:7717=2mbit", &two, &both).unwrap();
        assert_eq!(clear.access_bytes_s, Some(vec![2.5e5]));
    }

    proptest! {
        /// Rates that are written down are read again, in any order of the items.
        #[test]
        fn what_is_written_is_read(
            links in proptest::collection::vec(1u32..1_000_000, 6),
            access in proptest::option::of(proptest::collection::vec(1u32..1_000_000, 4)),
            order in any::<prop::sample::Index>(),
        ) {
            let (three, hosts) = (clusters(&["a", "b-1", "c"]), parse_list("self,h-1,h-2:9,10.0.0.1").unwrap());
            let ways = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
            let mut items: Vec<String> = ways.iter().zip(&links)
                .map(|((from, to), rate)| format!("{}>{}={rate}kbit", three.names[*from], three.names[*to]))
                .collect();
            for (host, rate) in hosts.iter().zip(access.iter().flatten()) {
                items.push(format!("{}={rate}kbit", host.shown()));
            }
            let start = order.index(items.len());
            items.rotate_left(start);
            let found = parse_bandwidths(&items.join("\n"), &three, &hosts).unwrap();
            for ((from, to), rate) in ways.iter().zip(&links) {
                prop_assert!((found.link_bytes_s[*from][*to] - f64::from(*rate) * 125.0).abs() < 1e-3);
            }
            prop_assert_eq!(found.access_bytes_s.is_some(), access.is_some());
            for (rate, given) in found.access_bytes_s.iter().flatten().zip(access.iter().flatten()) {
                prop_assert!((rate - f64::from(*given) * 125.0).abs() < 1e-3);
            }
        }

        /// Any text is either rates for all links and hosts, or an error that says why.
        #[test]
        fn any_text_is_complete_or_refused(text in "([ab]|h|\\*|-|>|=|[0-9]{1,3}|mbit| |\n|#){0,40}") {
            let (two, hosts) = (clusters(&["a", "b"]), parse_list("self,h").unwrap());
            match parse_bandwidths(&text, &two, &hosts) {
                Ok(found) => {
                    prop_assert!(found.link_bytes_s[0][1] > 0.0 && found.link_bytes_s[1][0] > 0.0);
                    prop_assert!(found.access_bytes_s.is_none_or(|rates| rates.len() == 2 && rates.iter().all(|r| *r > 0.0)));
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

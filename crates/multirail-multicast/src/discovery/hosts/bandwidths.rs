//! A file with the rates of the links between clusters, for the methods that plan with them.

use super::clusters::Clustering;
use multirail_proto::units::parse_rate_mbit_s;

/// Why a file of rates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthsError {
    /// A line has another form.
    #[error(
        "line {line}: {text:?} is not a link with its rate; write A-B=RATE for both directions or A>B=RATE for one, for example a-b=80mbit"
    )]
    Line {
        /// The line, from 1.
        line: usize,
        /// The text.
        text: String,
    },
    /// A cluster does not exist.
    #[error("line {line}: {text:?} does not join two clusters; the clusters are {clusters}")]
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
    /// A link has no rate.
    #[error("the link {from}>{to} has no rate; add a line {from}>{to}=RATE")]
    Missing {
        /// The sending cluster.
        from: String,
        /// The receiving cluster.
        to: String,
    },
}

/// The rate of the link from each cluster (row) to each other cluster (column) in bytes/s, from
/// items `A-B=RATE` (both directions) and `A>B=RATE`; `#` begins a comment. A line may have several
/// items. Every link between two clusters must occur. Rates within a cluster are 0 and not used.
///
/// # Errors
///
/// [`BandwidthsError`] names the line and what is wrong with it, or the link that is missing.
pub fn parse_link_rates(text: &str, clusters: &Clustering) -> Result<Vec<Vec<f64>>, BandwidthsError> {
    let names = &clusters.names;
    let mut rates: Vec<Vec<Option<f64>>> = vec![vec![None; names.len()]; names.len()];
    for (number, content) in text.lines().enumerate() {
        let line = number + 1;
        for text in content.split('#').next().unwrap_or_default().split_whitespace() {
            let wrong = || BandwidthsError::Line { line, text: text.to_owned() };
            let (ends, rate) = text.split_once('=').ok_or_else(wrong)?;
            let rate = parse_rate_mbit_s(rate).map_err(|_| wrong())?;
            let (from, to, both) = parse_ends(ends, names).ok_or_else(|| BandwidthsError::Unknown {
                line,
                text: ends.to_owned(),
                clusters: names.join(", "),
            })?;
            for (from, to) in [(from, to), (to, from)].into_iter().take(if both { 2 } else { 1 }) {
                if rates[from][to].replace(rate * 1e6 / 8.0).is_some() {
                    return Err(BandwidthsError::Twice { line, from: names[from].clone(), to: names[to].clone() });
                }
            }
        }
    }
    let link = |from: usize, to: usize| match rates[from][to] {
        Some(rate) => Ok(rate),
        None if from == to => Ok(0.0),
        None => Err(BandwidthsError::Missing { from: names[from].clone(), to: names[to].clone() }),
    };
    let all = 0..names.len();
    all.clone().map(|from| all.clone().map(|to| link(from, to)).collect()).collect()
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
    use super::*;

    fn clusters(names: &[&str]) -> Clustering {
        Clustering::from_names(names.iter().map(|n| (*n).to_owned()))
    }

    #[test]
    fn links() {
        let three = clusters(&["a", "b", "c-d"]);
        let rates = parse_link_rates("a-b=80mbit # near\na-c-d=8mbit b>c-d=16mbit\nc-d>b=1gbit", &three).unwrap();
        assert_eq!(rates, [vec![0.0, 1e7, 1e6], vec![1e7, 0.0, 2e6], vec![1e6, 1.25e8, 0.0]]);
        let says = |text: &str| parse_link_rates(text, &three).unwrap_err().to_string();
        assert!(says("a-b=fast").starts_with("line 1: \"a-b=fast\" is not a link"));
        assert!(says("a-b=0").starts_with("line 1: \"a-b=0\" is not a link"));
        assert!(says("\na-b").starts_with("line 2: \"a-b\" is not a link"));
        assert!(says("a-x=1mbit").contains("does not join two clusters; the clusters are a, b, c-d"));
        assert!(says("a-a=1mbit").contains("does not join two clusters"));
        assert!(says("a-b=1mbit\nb>a=1mbit").starts_with("line 2: the link b>a already has a rate"));
        assert!(says("a-b=1mbit").starts_with("the link a>c-d has no rate; add"));
        assert_eq!(parse_link_rates("", &clusters(&["a"])).unwrap(), [[0.0]]);
        let ambiguous = clusters(&["a", "a-a", "b"]);
        assert!(parse_link_rates("a-a-a=1mbit", &ambiguous).is_err(), "a and a-a, or a-a and a");
    }
}

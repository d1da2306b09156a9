//! Parsing of a description.

use super::description::{DescribeError, DescribedFilter, DescribedStream, Description};
use super::tables::{self, Lines, WrittenGuarantee};
use crate::edge::{DEFAULT_LIMIT_BYTES, Transport};
use crate::filters::Size;
use crate::graph::options::StreamOptions;
use multirail_proto::pipeline::Schedule;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use toml::{Spanned, Value};

/// Largest size of a description.
const MAX_BYTES: usize = 4 << 20;
/// Most units of work of a run.
const MAX_UNITS: u32 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    filter: Vec<Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>>,
    #[serde(default)]
    stream: Vec<Spanned<WrittenStream>>,
    #[serde(default)]
    hosts: BTreeMap<String, String>,
    #[serde(default)]
    run: Run,
    guarantee: Option<Spanned<WrittenGuarantee>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStream {
    from: Spanned<String>,
    to: Spanned<String>,
    schedule: Option<Schedule>,
    window: Option<u32>,
    transport: Option<Transport>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    chunk: Option<Spanned<Size>>,
    limit: Option<Spanned<Size>>,
    units: Option<Spanned<u32>>,
    #[serde(default)]
    query: String,
}

impl FromStr for Description {
    type Err = DescribeError;

    fn from_str(text: &str) -> Result<Self, DescribeError> {
        if text.len() > MAX_BYTES {
            return Err(DescribeError { line: 1, what: format!("the description is longer than {MAX_BYTES} bytes") });
        }
        let lines = Lines(text);
        let written: Written = toml::from_str(text).map_err(|e| lines.at(e.span().unwrap_or(0..0), e.message()))?;
        let mut filters = Vec::new();
        for filter in written.filter {
            filters.push(tables::filter(filter, &lines)?);
        }
        let stream = |stream: Spanned<WrittenStream>| {
            let line = lines.line(&stream.span());
            let WrittenStream { from, to, schedule, window, transport } = stream.into_inner();
            let defaults = StreamOptions::default();
            let (schedule, window) = (schedule.unwrap_or(defaults.schedule), window.unwrap_or(defaults.window));
            for end in [&from, &to] {
                if !filters.iter().any(|f: &DescribedFilter| f.name == *end.get_ref()) {
                    let what = format!("no [[filter]] has the name {:?}", end.get_ref());
                    return Err(lines.at(end.span(), &what));
                }
            }
            let options = defaults.schedule(schedule).window(window).transport(transport);
            Ok(DescribedStream { from: from.into_inner(), to: to.into_inner(), options, line })
        };
        let streams = written.stream.into_iter().map(stream).collect::<Result<Vec<_>, _>>()?;
        let size = |written: Option<Spanned<Size>>, least: u64, what: &str| match written {
            Some(size) if size.get_ref().0 < least => {
                Err(lines.at(size.span(), &format!("{what} must be at least {least}")))
            }
            size => Ok(size.map(|s| s.into_inner().0)),
        };
        let units = match written.run.units {
            Some(units) if !(1..=MAX_UNITS).contains(units.get_ref()) => {
                return Err(lines.at(units.span(), &format!("units must be 1 to {MAX_UNITS}")));
            }
            units => units.map_or(1, Spanned::into_inner),
        };
        Ok(Self {
            hosts: written.hosts,
            chunk_bytes: size(written.run.chunk, 1, "chunk")?,
            transport: None,
            units,
            query: written.run.query,
            guarantee: written.guarantee.map(|wanted| tables::guarantee(wanted, &lines)).transpose()?,
            limit_bytes: size(written.run.limit, 1, "limit")?.unwrap_or(DEFAULT_LIMIT_BYTES),
            filters,
            streams,
        })
    }
}

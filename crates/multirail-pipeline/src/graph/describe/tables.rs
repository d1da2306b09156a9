//! The tables of a description.

use super::description::{DescribeError, DescribedFilter, GuaranteeRequest};
use crate::filters::Size;
use multirail_proto::pipeline::chunk::Guarantee;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::{Spanned, Table, Value};

/// Keys of every filter. All other keys are parameters.
const FILTER_KEYS: [&str; 6] = ["name", "use", "program", "copies", "hosts", "stateless"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenGuarantee {
    updates_per_s: Option<f64>,
    latency_us: Option<f64>,
    #[serde(default)]
    perfect_pipeline: bool,
    update_bytes: Size,
    #[serde(default)]
    compute_ns_per_byte: f64,
}

pub(super) fn filter(
    filter: Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>,
    lines: &Lines<'_>,
) -> Result<DescribedFilter, DescribeError> {
    let span = filter.span();
    let mut left = filter.into_inner();
    let mut take = |name: &str| {
        let key = left.keys().find(|k| k.get_ref() == name)?.clone();
        left.remove(&key)
    };
    let [name, kind, program, copies, hosts, stateless] = FILTER_KEYS.map(&mut take);
    let Some(name) = read::<String>(name, "name", lines)? else {
        return Err(lines.at(span, "this [[filter]] has no name"));
    };
    let mut parameters = serde_json::Map::new();
    let kind = match (read::<String>(kind, "use", lines)?, program) {
        (Some(kind), None) => kind,
        (None, Some(program)) => {
            parameters.insert("program".to_owned(), json(program, "program", lines)?);
            "program".to_owned()
        }
        (Some(_), Some(program)) => {
            return Err(
                lines.at(program.span(), &format!("filter {name:?} has both `use` and `program`; which is it?"))
            );
        }
        (None, None) => {
            let what = format!("filter {name:?} has neither `use = \"KIND\"` nor `program = [\"NAME\", ...]`");
            return Err(lines.at(span, &what));
        }
    };
    for (key, value) in left {
        let json = json(value, key.get_ref(), lines)?;
        parameters.insert(key.into_inner(), json);
    }
    Ok(DescribedFilter {
        name,
        kind,
        parameters: serde_json::Value::Object(parameters),
        copies: read(copies, "copies", lines)?.unwrap_or(1),
        hosts: read(hosts, "hosts", lines)?.unwrap_or_default(),
        stateless: read(stateless, "stateless", lines)?.unwrap_or(false),
        line: lines.line(&span),
    })
}

fn read<T: DeserializeOwned>(
    value: Option<Spanned<Value>>,
    name: &str,
    lines: &Lines<'_>,
) -> Result<Option<T>, DescribeError> {
    let Some(value) = value else { return Ok(None) };
    let span = value.span();
    let read = T::deserialize(value.into_inner().into_deserializer());
    read.map(Some).map_err(|e: toml::de::Error| lines.at(span, &format!("`{name}` is wrong: {}", e.message())))
}

fn json(value: Spanned<Value>, name: &str, lines: &Lines<'_>) -> Result<serde_json::Value, DescribeError> {
    let span = value.span();
    to_json(value.into_inner()).ok_or_else(|| lines.at(span, &format!("`{name}` is no text, number, list or table")))
}

/// Returns `None` for a date, and for a number that JSON cannot represent.
fn to_json(value: Value) -> Option<serde_json::Value> {
    Some(match value {
        Value::String(text) => text.into(),
        Value::Integer(number) => number.into(),
        Value::Float(number) => serde_json::Number::from_f64(number)?.into(),
        Value::Boolean(yes) => yes.into(),
        Value::Array(all) => all.into_iter().map(to_json).collect::<Option<Vec<_>>>()?.into(),
        Value::Table(all) => table(all)?.into(),
        Value::Datetime(_) => return None,
    })
}

fn table(all: Table) -> Option<serde_json::Map<String, serde_json::Value>> {
    all.into_iter().map(|(key, value)| Some((key, to_json(value)?))).collect()
}

pub(super) fn guarantee(
    wanted: Spanned<WrittenGuarantee>,
    lines: &Lines<'_>,
) -> Result<GuaranteeRequest, DescribeError> {
    let (span, wanted) = (wanted.span(), wanted.into_inner());
    let is_usable = |v: f64| v.is_finite() && v > 0.0;
    let guarantee = match (wanted.updates_per_s, wanted.latency_us, wanted.perfect_pipeline) {
        (Some(rate), None, false) if is_usable(rate) => Guarantee::UpdatesPerSecond(rate),
        (None, Some(us), false) if is_usable(us) => Guarantee::LatencyUs(us),
        (None, None, true) => Guarantee::PerfectPipeline,
        _ => {
            let what =
                "[guarantee] needs one of `updates_per_s`, `latency_us` (more than 0) and `perfect_pipeline = true`";
            return Err(lines.at(span, what));
        }
    };
    let compute_ns_per_byte = wanted.compute_ns_per_byte;
    if wanted.update_bytes.0 == 0 || !compute_ns_per_byte.is_finite() || compute_ns_per_byte < 0.0 {
        return Err(lines.at(span, "`update_bytes` must be at least 1, and `compute_ns_per_byte` at least 0"));
    }
    Ok(GuaranteeRequest { guarantee, update_bytes: wanted.update_bytes.0, compute_ns_per_byte })
}

/// The text of a description, for finding lines.
pub(super) struct Lines<'a>(pub &'a str);

impl Lines<'_> {
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        self.0.as_bytes().iter().take(span.start).filter(|b| **b == b'\n').count() + 1
    }

    pub(super) fn at(&self, span: Range<usize>, what: &str) -> DescribeError {
        DescribeError { line: self.line(&span), what: what.to_owned() }
    }
}

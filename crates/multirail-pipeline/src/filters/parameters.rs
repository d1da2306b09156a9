//! The parameters of a filter, with errors that name the parameter.

use crate::runtime::Failure;
use multirail_proto::units::parse_size;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Parameters that were not taken yet.
pub(crate) struct Parameters {
    left: Map<String, Value>,
    known: Vec<&'static str>,
}

/// A size in bytes, which may be written as text like `"64k"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub u64);

impl Parameters {
    /// The parameters in a JSON object; none in `null`.
    pub(crate) fn of(value: &Value) -> Result<Self, Failure> {
        let left = match value {
            Value::Null => Map::new(),
            Value::Object(map) => map.clone(),
            other => return Err(format!("its parameters are {other}, and not names with values").into()),
        };
        Ok(Self { left, known: Vec::new() })
    }

    /// Takes an optional parameter.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>, Failure> {
        self.known.push(name);
        let Some(value) = self.left.remove(name) else { return Ok(None) };
        let read = T::deserialize(value).map_err(|e| format!("its parameter {name:?} is wrong: {e}"))?;
        Ok(Some(read))
    }

    /// Takes a required parameter.
    pub(crate) fn need<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T, Failure> {
        self.take(name)?.ok_or_else(|| format!("it needs the parameter {name:?}").into())
    }

    /// Checks that no parameter is left.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let Some(name) = self.left.keys().next() else { return Ok(()) };
        let known = match self.known.as_slice() {
            [] => "it has none".to_owned(),
            known => format!("it has: {}", known.join(", ")),
        };
        Err(format!("its parameter {name:?} is unknown; {known}").into())
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes, or a size as \"64k\"")]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => parse_size(&text).map(Self).map_err(D::Error::custom),
        }
    }
}

//! What calls say about hosts, tokens and rails.

use crate::error;
use crate::error::Kind;
use multirail::server::DEFAULT_PORT;
use multirail::{Config, RailFilter, Token as Secret};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The secret that all hosts must know.
#[pyclass(frozen, module = "multirail", from_py_object)]
#[derive(Clone)]
pub(crate) struct Token {
    secret: Secret,
}

#[pymethods]
impl Token {
    #[new]
    fn new(py: Python<'_>, secret: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = match secret.extract::<String>() {
            Ok(text) => text.into_bytes(),
            Err(_) => secret.extract::<Vec<u8>>()?,
        };
        let secret = Secret::from_secret(&bytes)
            .map_err(|why| error::make(py, Kind::TokenError, format!("the secret: {why}"), None))?;
        Ok(Self { secret })
    }

    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let secret = Secret::from_file(&path).map_err(|error| token_file(py, &error))?;
        Ok(Self { secret })
    }

    #[staticmethod]
    fn create_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Secret::create_file(&path).map_err(|error| token_file(py, &error))?;
        Self::from_file(py, path)
    }

    fn __repr__(&self) -> &'static str {
        "Token(..)"
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    fn __hash__(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.key();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }
}

impl Token {
    /// For comparisons only.
    fn key(&self) -> [u8; 32] {
        self.secret.key_for("multirail 2026 equal tokens")
    }
}

/// A file that cannot be opened is the usual `OSError`, as `FileNotFoundError`.
fn token_file(py: Python<'_>, error: &multirail::Error) -> PyErr {
    if let multirail::Error::TokenFile { path, why: multirail::TokenError::Io(cause) } = error
        && let Some(number) = cause.raw_os_error()
    {
        let kind = py.get_type::<pyo3::exceptions::PyOSError>();
        let made = || {
            let text = py.import("os")?.call_method1("strerror", (number,))?;
            kind.call1((number, text, path.as_path()))
        };
        return made().map_or_else(|failed| failed, PyErr::from_value);
    }
    error::of(py, error, None)
}

/// The configuration of sessions with this token over these rails.
///
/// A session is lost when no rail has come back for `give_up_after` seconds; None is the default of the library.
pub(crate) fn sessions(token: &Token, rails: &str, give_up_after: Option<f64>) -> PyResult<Config> {
    let rails: RailFilter = rails.parse().map_err(|why| PyValueError::new_err(format!("rails {rails:?}: {why}")))?;
    let config = Config::new().token(token.secret.clone()).rails(rails).batch_reads(true);
    Ok(match duration("give_up_after", give_up_after)? {
        Some(time) => config.give_up_after(time),
        None => config,
    })
}

/// A host with its port.
pub(crate) fn host(text: &str) -> String {
    let bare_v6 = text.parse::<Ipv6Addr>().is_ok();
    match text {
        _ if bare_v6 => format!("[{text}]:{DEFAULT_PORT}"),
        _ if text.ends_with(']') || !text.contains(':') => format!("{text}:{DEFAULT_PORT}"),
        _ => text.to_owned(),
    }
}

/// An address to listen on: `:PORT` is that of every interface.
pub(crate) fn address(text: &str) -> PyResult<SocketAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT));
    }
    let every = text.strip_prefix(':').and_then(|port| port.parse().ok());
    match every {
        Some(port) => Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)),
        None => text.parse().map_err(|_| {
            PyValueError::new_err(format!(
                "cannot listen on {text:?}: write :PORT, ADDRESS or ADDRESS:PORT, an IPv6 address in brackets"
            ))
        }),
    }
}

/// The argument `timeout`, in seconds.
pub(crate) fn seconds(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    duration("timeout", timeout)
}

/// An argument that is a time in seconds.
fn duration(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let convert = |seconds| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| PyValueError::new_err(format!("{name}={seconds}: write seconds, at least 0, or None")))
    };
    seconds.map(convert).transpose()
}

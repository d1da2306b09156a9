//! Makes the exceptions of `multirail.errors` of the library's errors.

use multirail::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::io;

/// The class of an exception, by its name in `multirail.errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    MultirailError,
    Refused,
    Timeout,
    Denied,
    Closed,
    Lost,
    TooLong,
    TokenError,
    Forked,
    CopyFailed,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::MultirailError => "MultirailError",
            Kind::Refused => "Refused",
            Kind::Timeout => "Timeout",
            Kind::Denied => "Denied",
            Kind::Closed => "Closed",
            Kind::Lost => "Lost",
            Kind::TooLong => "TooLong",
            Kind::TokenError => "TokenError",
            Kind::Forked => "Forked",
            Kind::CopyFailed => "CopyFailed",
        }
    }

    fn of(error: &Error) -> Kind {
        match error {
            Error::Unreachable { cause, .. } if cause.kind() == io::ErrorKind::TimedOut => Kind::Timeout,
            Error::Io { cause, .. } if cause.kind() == io::ErrorKind::TimedOut => Kind::Timeout,
            Error::HandshakeTimeout { .. } => Kind::Timeout,
            Error::Unreachable { .. }
            | Error::NoRail { .. }
            | Error::NotMultirail { .. }
            | Error::Version { .. }
            | Error::Handshake { .. }
            | Error::Busy { .. }
            | Error::Stopping => Kind::Refused,
            Error::TokenMissing { .. }
            | Error::TokenWrong
            | Error::TokenUnknown
            | Error::CodeWrong
            | Error::KeyRefused { .. }
            | Error::HostUnknown { .. }
            | Error::HostChanged { .. }
            | Error::PlaintextDiffers { .. } => Kind::Denied,
            Error::TokenFile { .. } => Kind::TokenError,
            Error::Closed => Kind::Closed,
            Error::SessionUnknown
            | Error::Protocol(_)
            | Error::Aborted(_)
            | Error::AllRailsLost(_)
            | Error::Cancelled(_) => Kind::Lost,
            Error::MessageTooLarge { .. } => Kind::TooLong,
            _ => Kind::MultirailError,
        }
    }
}

/// The exception for an error of the library in dealing with `host`.
pub(crate) fn of(py: Python<'_>, error: &Error, host: Option<&str>) -> PyErr {
    let exception = make(py, Kind::of(error), error.to_string(), host);
    match error {
        Error::NoRail { rail: Some(rail), .. } => with_rail(py, exception, rail),
        _ => exception,
    }
}

/// The exception, of which one rail is the cause: an interface of this host.
pub(crate) fn with_rail(py: Python<'_>, exception: PyErr, rail: &str) -> PyErr {
    match exception.value(py).setattr("rail", rail) {
        Ok(()) => exception,
        Err(failed) => failed,
    }
}

/// An exception of no particular class.
pub(crate) fn other(py: Python<'_>, message: String) -> PyErr {
    make(py, Kind::MultirailError, message, None)
}

/// An exception that says what happened, and with which host unless the message says so.
pub(crate) fn make(py: Python<'_>, kind: Kind, message: String, host: Option<&str>) -> PyErr {
    let message = match host {
        Some(host) if !message.contains(host) => format!("{host}: {message}"),
        _ => message,
    };
    let made = || py.import("multirail.errors")?.getattr(kind.name())?.call1((message.as_str(), host));
    match made() {
        Ok(exception) => PyErr::from_value(exception),
        // Only in an interpreter that ends.
        Err(_) => PyRuntimeError::new_err(message),
    }
}

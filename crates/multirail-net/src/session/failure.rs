//! Converts the machine's failures to this crate's errors.

use crate::error::Error;
use multirail_proto::session::Failure;

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Protocol(violation) => Error::Protocol(violation.to_string()),
            Failure::Aborted(reason) => Error::Aborted(reason),
            Failure::AllRailsLost(after) => Error::AllRailsLost(after),
            Failure::Cancelled(what) => Error::Cancelled(what),
            other => Error::Aborted(other.to_string()),
        }
    }
}

//! `pass` and `discard`.

use super::super::filter::{Failure, Filter, Place};
use super::super::io::Io;
use super::parameters::Parameters;
use super::write_to_all;
use serde_json::Value;

/// Passes every buffer on, to all streams that lead out.
pub fn pass(parameters: &Value, _: &Place) -> Result<impl Filter + use<>, Failure> {
    Parameters::of(parameters)?.end()?;
    Ok(|io: &mut Io<'_>| {
        while let Some(received) = io.read()? {
            write_to_all(io, received.tag, received.body)?;
        }
        Ok(())
    })
}

/// Reads everything; what came can be seen from the copy's counters.
pub fn discard(parameters: &Value, _: &Place) -> Result<impl Filter + use<>, Failure> {
    Parameters::of(parameters)?.end()?;
    Ok(|io: &mut Io<'_>| {
        while io.read()?.is_some() {}
        Ok(())
    })
}

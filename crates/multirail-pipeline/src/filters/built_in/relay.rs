//! `pass` and `discard`.

use super::to_all::write_to_all;
use crate::filters::Parameters;
use crate::runtime::{CopyInfo, Failure, Filter, Io};
use serde_json::Value;

/// Passes every buffer on to all output streams.
pub(super) fn pass(parameters: &Value, _: &CopyInfo) -> Result<impl Filter + use<>, Failure> {
    Parameters::of(parameters)?.end()?;
    Ok(|io: &mut Io<'_>| {
        while let Some(received) = io.read()? {
            write_to_all(io, received.tag, received.body)?;
        }
        Ok(())
    })
}

/// Reads all buffers and drops them. The copy's counters show what has arrived.
pub(super) fn discard(parameters: &Value, _: &CopyInfo) -> Result<impl Filter + use<>, Failure> {
    Parameters::of(parameters)?.end()?;
    Ok(|io: &mut Io<'_>| {
        while io.read()?.is_some() {}
        Ok(())
    })
}

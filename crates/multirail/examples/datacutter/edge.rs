//! The cost of an edge within a process.

use crate::{config, emit};
use multirail::pipeline::{Failure, Group, Io};
use serde_json::json;
use std::time::Instant;

pub fn within(buffer_bytes: usize, buffers: u64) -> Result<(), Failure> {
    let mut group = Group::new(config());
    group.filter("source", move |_| {
        move |io: &mut Io<'_>| -> Result<(), Failure> {
            for i in 0..buffers {
                let body = io.buffer_of(buffer_bytes);
                io.write(0, i, body)?;
            }
            Ok(())
        }
    });
    group.filter("sink", |_| {
        |io: &mut Io<'_>| -> Result<(), Failure> {
            while io.read()?.is_some() {}
            Ok(())
        }
    });
    group.stream("source", "sink");
    let mut running = group.start()?;
    running.run(b"")?;
    let since = Instant::now();
    running.run(b"")?;
    let us = since.elapsed().as_secs_f64() * 1e6 / buffers as f64;
    emit(&json!({ "measured": "within", "buffer_bytes": buffer_bytes, "us_per_buffer": us }));
    Ok(())
}

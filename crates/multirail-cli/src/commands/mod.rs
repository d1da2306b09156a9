//! One file a command. Each has its clap arguments and a `run` that gets the printer and returns the exit code.

pub mod doctor;
pub mod lab;

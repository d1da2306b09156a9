//! A model of the program's decisions, for tests.
//!
//! The kernel decides by `bpf/decide.h`. The model is written independently of it, on the same
//! data, and shares its parameters. `tests` states what a decision has to achieve; `program` runs
//! the model and the program with the same packets, and compares every decision and all state.

mod adaptive;
mod host;
mod port_set;
mod program;
mod rates;
mod tests;
mod types;

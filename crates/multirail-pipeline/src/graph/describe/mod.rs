//! A group described by a TOML file. Errors name the line.
//!
//! ```toml
//! [[filter]]
//! name = "read"
//! use = "read"
//! file = "image"          # any other key is a parameter of the kind
//!
//! [[filter]]
//! name = "work"
//! program = ["./work", "--fast"]
//! copies = 3
//! hosts = ["a", "b"]
//!
//! [[stream]]
//! from = "read"
//! to = "work"
//!
//! [hosts]
//! a = "10.0.0.1:7717"
//! b = "10.0.0.2:7717"
//! ```

mod description;
mod file;
mod tables;

pub use description::{DescribeError, Description, GuaranteeRequest};

#[cfg(test)]
mod tests;

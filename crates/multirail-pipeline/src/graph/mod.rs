//! Groups of filters: building one in a program, and describing one in a file.

pub mod describe;
mod group;
mod options;

pub use group::{DEFAULT_CHUNK_BYTES, FilterSpec, Group, LOCAL};
pub use options::StreamOptions;

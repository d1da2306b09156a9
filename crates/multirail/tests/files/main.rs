//! Copies of files over loopback.

mod again;
mod confinement;
mod destinations;
mod failures;
mod support;
mod trees;

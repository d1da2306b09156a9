//! Test networks.

#![doc = include_str!("../README.md")]

pub mod imports;
pub mod tree;

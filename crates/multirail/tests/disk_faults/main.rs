//! Copies to a disk in memory, mounted with FUSE, whose power is cut at any moment and which fails.

mod broadcasts;
mod copies;
mod disk;
mod filesystem;
mod inode;
mod tree;

//! Labs on this machine's kernel. They need root; where labs cannot be made, each test says so and is skipped.

mod clusters;
mod common;
mod lifecycle;
mod ports;
mod rails;
mod relay;
mod wan;

//! Tests of labs on the kernel of this machine. They need root. Where no lab can be created, each
//! test is reported as skipped.

mod clusters;
mod common;
mod lifecycle;
mod ports;
mod rails;
mod relay;
mod wan;

//! `cargo run -p multirail-checks --example cycles -- crates/X/src/lib.rs`: prints the import
//! cycles of a crate.

use multirail_checks::imports::cycles;

fn main() {
    for root in std::env::args().skip(1) {
        let found = std::panic::catch_unwind(|| cycles(root.as_ref()));
        match found {
            Ok(found) => println!("{root}: {} cycles\n{}", found.len(), found.join("\n\n")),
            Err(_) => println!("{root}: not read"),
        }
    }
}

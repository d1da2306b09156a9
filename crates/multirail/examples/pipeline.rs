//! A pipeline of three filters in this process, the middle one in three copies: it counts the primes below two million.
//!
//! `cargo run -p multirail --release --example pipeline`

use multirail::Config;
use multirail::pipeline::{Failure, Group, Io, PipelineError, Place};

/// Runs the example.
pub fn main() -> Result<(), PipelineError> {
    let mut group = Group::new(Config::default());
    group.filter("numbers", |_: &Place| {
        |io: &mut Io<'_>| -> Result<(), Failure> {
            (0..200u64).try_for_each(|part| io.write(0, part, (part * 10_000).to_le_bytes().to_vec()))
        }
    });
    let count = |_: &Place| {
        |io: &mut Io<'_>| -> Result<(), Failure> {
            while let Some(part) = io.read()? {
                let first = u64::from_le_bytes(part.body[..].try_into()?);
                let primes = (first..first + 10_000).filter(|n| is_prime(*n)).count() as u64;
                io.write(0, part.tag, primes.to_le_bytes().to_vec())?;
            }
            Ok(())
        }
    };
    group.filter("count", count).copies(3);
    group.filter("sum", |_: &Place| {
        |io: &mut Io<'_>| -> Result<(), Failure> {
            let mut sum = 0;
            while let Some(counted) = io.read()? {
                sum += u64::from_le_bytes(counted.body[..].try_into()?);
            }
            println!("{sum} primes");
            Ok(())
        }
    });
    group.stream("numbers", "count").stream("count", "sum");
    group.start()?.run(b"")
}

fn is_prime(n: u64) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

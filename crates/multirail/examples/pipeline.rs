//! A pipeline of three filters in this process, the middle one in three copies: it squares a
//! million numbers and sums them.
//!
//! `cargo run -p multirail --release --example pipeline`

use multirail::Config;
use multirail::pipeline::{Failure, Group, Io, PipelineError};

fn main() -> Result<(), PipelineError> {
    let mut group = Group::new(Config::default());
    group.filter("numbers", |_| |io: &mut Io<'_>| (0..1000).try_for_each(|part| io.write(0, part, vec![])));
    let squares = group.filter("squares", |_| {
        |io: &mut Io<'_>| -> Result<(), Failure> {
            while let Some(part) = io.read()? {
                let sum: u64 = (part.tag * 1000..(part.tag + 1) * 1000).map(|n| n * n).sum();
                io.write(0, sum, vec![])?;
            }
            Ok(())
        }
    });
    squares.copies(3);
    group.filter("sum", |_| {
        |io: &mut Io<'_>| -> Result<(), Failure> {
            let mut sum = 0;
            while let Some(part) = io.read()? {
                sum += part.tag;
            }
            println!("{sum}");
            Ok(())
        }
    });
    group.stream("numbers", "squares").stream("squares", "sum");
    group.start()?.run(b"")
}

#[test]
fn runs() {
    main().expect("the example runs");
}

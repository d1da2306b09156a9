//! The interface that filters implement.

use super::failure::Failure;
use super::info::UnitOfWork;
use super::io::Io;

/// One transparent copy of a filter ("Impact of High Performance Sockets on Data Intensive
/// Applications", section 4.1).
///
/// A copy has a thread of its own, which creates the filter and gives it one unit of work after
/// the other. After a failure, the thread creates a new filter for the next unit.
///
/// A closure `FnMut(&mut Io) -> Result<(), Failure>` is a filter without `init` and `finalize`.
///
/// # Examples
///
/// A filter that counts the bytes of a unit of work and passes the number on:
///
/// ```
/// use multirail_net::Config;
/// use multirail_pipeline::{Failure, Filter, Group, Io, UnitOfWork};
///
/// #[derive(Default)]
/// struct Count {
///     bytes: u64,
/// }
///
/// impl Filter for Count {
///     fn init(&mut self, _: &UnitOfWork) -> Result<(), Failure> {
///         self.bytes = 0;
///         Ok(())
///     }
///
///     fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
///         while let Some(buffer) = io.read()? {
///             self.bytes += buffer.body.len() as u64;
///         }
///         io.write(0, self.bytes, vec![])
///     }
/// }
///
/// let (told, counted) = std::sync::mpsc::channel();
/// let mut group = Group::new(Config::new());
/// group.filter("source", |_| |io: &mut Io<'_>| (0..10).try_for_each(|tag| io.write(0, tag, vec![0; 1000])));
/// group.filter("count", |_| Count::default()).copies(2);
/// group.filter("sum", move |_| {
///     let told = told.clone();
///     move |io: &mut Io<'_>| {
///         let mut sum = 0;
///         while let Some(count) = io.read()? {
///             sum += count.tag;
///         }
///         Ok(told.send(sum)?)
///     }
/// });
/// group.stream("source", "count").stream("count", "sum");
/// group.start()?.run(b"")?;
/// assert_eq!(counted.recv(), Ok(10_000));
/// # Ok::<(), multirail_pipeline::PipelineError>(())
/// ```
pub trait Filter {
    /// Acquires what a unit of work needs.
    ///
    /// # Errors
    ///
    /// An error fails the unit of work.
    fn init(&mut self, unit: &UnitOfWork) -> Result<(), Failure> {
        let _ = unit;
        Ok(())
    }

    /// Reads from the input streams until [`Io::read`] returns `None`, and writes to the output
    /// streams. Input that was not read when this function returns is discarded.
    ///
    /// # Errors
    ///
    /// An error fails the unit of work. Errors of [`Io`] must be passed on.
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure>;

    /// Releases what [`Filter::init`] acquired. It is called only after a `process` without error.
    ///
    /// # Errors
    ///
    /// An error fails the unit of work.
    fn finalize(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<F: FnMut(&mut Io<'_>) -> Result<(), Failure>> Filter for F {
    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        self(io)
    }
}

//! When a program that is a filter counts as stuck.
//!
//! The owner reports progress as it happens, and calls [`Watchdog::check`] now and then with what
//! it knows of the program's pipes. Times are microseconds on the owner's clock.

/// A program that has closed a pipe too early may take this long to end and show why.
pub(crate) const CLOSE_GRACE_US: u64 = 1_000_000;

/// A pipe of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipe {
    /// The program's stdin.
    Input,
    /// The program's stdout.
    Output,
}

/// What the owner knows of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramState {
    /// The program has closed its stdin.
    pub closed_input: bool,
    /// The program has closed its stdout.
    pub closed_output: bool,
    /// The filter has output streams.
    pub has_outputs: bool,
    /// More input may come.
    pub input_open: bool,
    /// A buffer waits for the program to read it.
    pub has_to_read: bool,
    /// The program owes a buffer for one that it has read.
    pub owes_output: bool,
}

/// Why a program is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// The program closed this pipe before its input ended, and goes on.
    ClosedEarly(Pipe),
    /// The program does not read the buffer that waits.
    ReadsNothing,
    /// The program does not end after its input has ended.
    DoesNotEnd,
    /// The program does not write the buffer that it owes.
    WritesNothing,
}

/// Watches one program during one unit of work.
#[derive(Debug, Clone)]
pub struct Watchdog {
    silence_us: Option<u64>,
    progress_us: u64,
    closed: Option<(u64, Pipe)>,
}

impl Watchdog {
    /// A watchdog that allows a program to make no progress for `silence_us`; `None` means forever.
    pub fn new(silence_us: Option<u64>, now_us: u64) -> Self {
        Self { silence_us, progress_us: now_us, closed: None }
    }

    /// The program has read or written something, or more is wanted of it from now on.
    pub fn on_progress(&mut self, now_us: u64) {
        self.progress_us = now_us;
    }

    /// The pipe that the program has closed too early, if any.
    pub fn closed_early(&self) -> Option<Pipe> {
        self.closed.map(|(_, pipe)| pipe)
    }

    /// Whether the program is stuck.
    pub fn check(&mut self, now_us: u64, program: ProgramState) -> Option<Stuck> {
        let closed = match program {
            ProgramState { closed_input: true, .. } => Some(Pipe::Input),
            ProgramState { closed_output: true, input_open: true, has_outputs: true, .. } => Some(Pipe::Output),
            _ => None,
        };
        self.closed = self.closed.or(closed.map(|pipe| (now_us, pipe)));
        if let Some((since_us, pipe)) = self.closed
            && now_us.saturating_sub(since_us) >= CLOSE_GRACE_US
        {
            return Some(Stuck::ClosedEarly(pipe));
        }
        let silence_us = self.silence_us?;
        if now_us.saturating_sub(self.progress_us) < silence_us {
            return None;
        }
        match program {
            ProgramState { has_to_read: true, .. } => Some(Stuck::ReadsNothing),
            ProgramState { input_open: false, .. } => Some(Stuck::DoesNotEnd),
            ProgramState { owes_output: true, .. } => Some(Stuck::WritesNothing),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: ProgramState = ProgramState {
        closed_input: false,
        closed_output: false,
        has_outputs: true,
        input_open: true,
        has_to_read: false,
        owes_output: false,
    };

    #[test]
    fn silence_counts_only_while_something_is_wanted() {
        for (program, stuck) in [
            (IDLE, None),
            (ProgramState { has_to_read: true, ..IDLE }, Some(Stuck::ReadsNothing)),
            (ProgramState { input_open: false, ..IDLE }, Some(Stuck::DoesNotEnd)),
            (ProgramState { owes_output: true, ..IDLE }, Some(Stuck::WritesNothing)),
        ] {
            let mut watchdog = Watchdog::new(Some(500), 1000);
            assert_eq!(watchdog.check(1499, program), None);
            assert_eq!(watchdog.check(1500, program), stuck);
            watchdog.on_progress(1500);
            assert_eq!(watchdog.check(1999, program), None);
            assert_eq!(Watchdog::new(None, 0).check(u64::MAX, program), None);
        }
    }

    #[test]
    fn a_pipe_that_is_closed_early_is_forgiven_for_a_moment() {
        let closed = ProgramState { closed_output: true, ..IDLE };
        for (program, pipe) in [
            (closed, Some(Pipe::Output)),
            (ProgramState { has_outputs: false, ..closed }, None),
            (ProgramState { input_open: false, ..closed }, None),
            (ProgramState { closed_input: true, ..IDLE }, Some(Pipe::Input)),
        ] {
            let mut watchdog = Watchdog::new(None, 0);
            assert_eq!(watchdog.check(10, program), None);
            assert_eq!(watchdog.closed_early(), pipe);
            assert_eq!(watchdog.check(10 + CLOSE_GRACE_US - 1, program), None);
            assert_eq!(watchdog.check(10 + CLOSE_GRACE_US, program), pipe.map(Stuck::ClosedEarly));
        }
    }
}

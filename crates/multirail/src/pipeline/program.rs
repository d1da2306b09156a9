//! `program`: a filter that is any program. It reads buffers from stdin and writes buffers to stdout, each behind its length as a
//! little-endian `u32`; its input ends where the unit of work does, and then it ends, with exit code 0.
//!
//! The copy's own thread does everything: pipes do not block, and it sleeps for them and for the copy's streams at once. So a program
//! that writes before it has read, or never reads, holds up nobody but the unit of work it is in.

mod child;
mod frames;

use super::built_in::Parameters;
use super::filter::{Failure, Filter, Place, Unit};
use super::io::{Io, Next};
use super::registry::Filters;
use child::Child;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program may do nothing for so long while something is wanted of it.
const DEFAULT_SILENCE_S: f64 = 60.0;
/// Who has closed a stream too early has so long to end and show why.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// What was read and not yet answered: tags are remembered for so many buffers.
const MAX_TAGS: usize = 1 << 20;

impl Filters {
    /// Adds `program`, which runs any program in `folder`: whoever may start a pipeline here may then do whatever this process's
    /// user may. Parameters: `program`, a list of the program's name and its arguments; `silence_s`, for how long it may do nothing while
    /// something is wanted of it (default 60; 0: for ever).
    pub fn with_programs(self, folder: &Path) -> Self {
        let folder: Arc<Path> = folder.into();
        self.with("program", move |parameters, place| Program::new(parameters, place, folder.clone()))
    }
}

/// One copy: a process for each unit of work.
struct Program {
    command: Vec<String>,
    silence: Option<Duration>,
    folder: Arc<Path>,
    place: Place,
    child: Option<Child>,
}

impl Program {
    fn new(parameters: &Value, place: &Place, folder: Arc<Path>) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let command: Vec<String> = parameters.need("program")?;
        let silence_s: f64 = parameters.take("silence_s")?.unwrap_or(DEFAULT_SILENCE_S);
        parameters.end()?;
        if command.first().is_none_or(String::is_empty) {
            return Err("its parameter \"program\" is empty; write program = [\"NAME\", \"ARGUMENT\"]".into());
        }
        let silence = Duration::try_from_secs_f64(silence_s);
        let silence = silence.map_err(|e| format!("its parameter \"silence_s\" is {silence_s}: {e}"))?;
        let silence = (!silence.is_zero()).then_some(silence);
        Ok(Self { command, silence, folder, place: place.clone(), child: None })
    }
}

impl Filter for Program {
    fn init(&mut self, unit: &Unit) -> Result<(), Failure> {
        self.child = Some(Child::start(&self.command, &self.folder, &self.place, unit)?);
        Ok(())
    }

    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let Some(child) = self.child.take() else { return Err("its program was not started".into()) };
        let one_by_one = io.is_kept();
        let work = Work {
            child,
            silence: self.silence,
            one_by_one,
            tags: VecDeque::new(),
            last_tag: 0,
            input: true,
            closed: None,
        };
        work.run(io)
    }
}

/// A unit of work of a running program.
struct Work {
    child: Child,
    silence: Option<Duration>,
    /// If this copy's host dies, another does what this one was not done with: so what is made of a buffer must be known.
    one_by_one: bool,
    /// Of the buffers that it was given and has not answered, oldest first.
    tags: VecDeque<u64>,
    last_tag: u64,
    /// More may come.
    input: bool,
    /// Since when one of its pipes is closed that should not be, and which.
    closed: Option<(Instant, &'static str)>,
}

impl Work {
    fn run(mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let mut since = Instant::now();
        loop {
            let (mut moved, before) = (false, self.child.has_written());
            while let Some(body) = self.child.take(|bytes| io.buffer(bytes))? {
                moved = true;
                let tag = self.tag()?;
                io.write(0, tag, body)?;
            }
            moved |= self.child.give()? || self.child.has_written() != before;
            if !self.input && !self.child.has_to_read() {
                self.child.close_input();
            }
            if self.child.has_ended()? {
                return self.end(io);
            }
            if moved {
                since = Instant::now();
            }
            self.check(since.elapsed(), io.place().outputs > 0)?;
            let wanted = self.input && !self.child.has_to_read() && (!self.one_by_one || self.tags.is_empty());
            match io.read_or_poll(wanted, self.is_at_work(), &self.child.pipes())? {
                Next::Buffer(received) => {
                    if self.tags.len() < MAX_TAGS {
                        self.tags.push_back(received.tag);
                    }
                    self.child.offer(received.body)?;
                    since = Instant::now();
                }
                Next::End => {
                    self.input = false;
                    since = Instant::now();
                }
                Next::Nothing => {}
            }
        }
    }

    /// The n-th buffer that it writes gets the tag of the n-th that it got, or else the last one's.
    fn tag(&mut self) -> Result<u64, Failure> {
        match self.tags.pop_front() {
            Some(tag) => self.last_tag = tag,
            None if self.one_by_one => {
                return Err("it wrote more buffers than it read; one that is stateless writes one for each".into());
            }
            None => {}
        }
        Ok(self.last_tag)
    }

    /// Something is wanted of it.
    fn is_at_work(&self) -> bool {
        self.child.has_to_read() || !self.input || !self.tags.is_empty()
    }

    /// Whether it does what it should.
    fn check(&mut self, idle: Duration, has_outputs: bool) -> Result<(), Failure> {
        if self.closed.is_none() && self.child.has_closed_input() {
            self.closed = Some((Instant::now(), "input"));
        } else if self.closed.is_none() && self.child.has_closed_output() && self.input && has_outputs {
            self.closed = Some((Instant::now(), "output"));
        }
        if let Some((_, what)) = self.closed.filter(|(since, _)| since.elapsed() >= END_PATIENCE) {
            return Err(self.child.because(format!("it closed its {what} before its input ended")));
        }
        let Some(silence) = self.silence.filter(|silence| idle >= *silence) else { return Ok(()) };
        let seconds = silence.as_secs_f64();
        let why = if self.child.has_to_read() {
            format!("it has read nothing for {seconds} s, and a buffer waits")
        } else if !self.input {
            format!("it has written nothing for {seconds} s after its input ended, and does not end")
        } else if self.one_by_one && !self.tags.is_empty() {
            format!(
                "it has written nothing for {seconds} s; one that is stateless writes a buffer for each that it reads"
            )
        } else {
            return Ok(());
        };
        Err(self.child.because(format!("{why}; its parameter \"silence_s\" allows more")))
    }

    /// It has ended: was that all?
    fn end(mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let status = self.child.reap()?;
        let mut all = Vec::new();
        while let Some(body) = self.child.take(|bytes| io.buffer(bytes))? {
            all.push(body);
        }
        if !status.success() {
            return Err(self.child.because(format!("it failed: {status}")));
        }
        if let Some((has, of)) = self.child.cut_off() {
            return Err(self.child.because(format!("it ended in the middle of a buffer, after {has} of {of} bytes")));
        }
        if let Some((_, what)) = self.closed.filter(|_| !self.input) {
            return Err(self.child.because(format!("it closed its {what} before its input ended")));
        }
        if self.input || self.child.has_to_read() {
            return Err(self.child.because("it ended, with exit code 0, before its input did".to_owned()));
        }
        for body in all {
            let tag = self.tag()?;
            io.write(0, tag, body)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

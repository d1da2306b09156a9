//! The kind `program`: a filter that is any program.
//!
//! The program reads buffers from stdin and writes buffers to stdout, each after its length as a
//! little-endian `u32`. Its input ends with the unit of work. Then the program must end as well,
//! with exit code 0.
//!
//! The copy's own thread does everything: the pipes do not block, and the thread sleeps for them
//! and for the copy's streams at once. A program that writes before it has read, or that never
//! reads, therefore delays only its own unit of work.

mod child;
mod environment;
mod frames;
mod process;

use crate::filters::{Filters, Parameters};
use crate::runtime::{CopyInfo, Failure, Filter, Io, Next, UnitOfWork};
use child::Child;
use environment::Environment;
use multirail_proto::pipeline::watchdog::{Pipe, ProgramState, Stuck, Watchdog};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default time that a program may make no progress while something is wanted of it.
const DEFAULT_SILENCE_S: f64 = 60.0;
/// Most buffers that were read and not answered whose tags are remembered.
const MAX_TAGS: usize = 1 << 20;

impl Filters {
    /// Adds the kind `program`, which runs any program in `folder`.
    ///
    /// Anyone who may start a pipeline on this host can then do what this process's user may do.
    /// Parameters: `program`, a list of the program's name and its arguments; `env`, variables for its
    /// environment; `silence_s`, the time in seconds that it may make no progress while something is
    /// wanted of it (default 60; 0 means forever).
    ///
    /// Of this process's environment, a program inherits `PATH`, `HOME`, `LANG`, `TZ` and `TMPDIR`.
    pub fn with_programs(self, folder: &Path) -> Self {
        let folder: Arc<Path> = folder.into();
        self.with("program", move |parameters, info| Program::new(parameters, info, folder.clone()))
    }
}

/// One copy. It has a process for each unit of work.
struct Program {
    command: Vec<String>,
    environment: Environment,
    silence: Option<Duration>,
    folder: Arc<Path>,
    info: CopyInfo,
    child: Option<Child>,
}

impl Program {
    fn new(parameters: &Value, info: &CopyInfo, folder: Arc<Path>) -> Result<Self, Failure> {
        let mut parameters = Parameters::of(parameters)?;
        let command: Vec<String> = parameters.need("program")?;
        let environment = Environment::new(parameters.take("env")?.unwrap_or_default())?;
        let silence_s: f64 = parameters.take("silence_s")?.unwrap_or(DEFAULT_SILENCE_S);
        parameters.end()?;
        if command.first().is_none_or(String::is_empty) {
            return Err("its parameter \"program\" is empty; write program = [\"NAME\", \"ARGUMENT\"]".into());
        }
        let silence = Duration::try_from_secs_f64(silence_s);
        let silence = silence.map_err(|e| format!("its parameter \"silence_s\" is {silence_s}: {e}"))?;
        let silence = (!silence.is_zero()).then_some(silence);
        Ok(Self { command, environment, silence, folder, info: info.clone(), child: None })
    }
}

impl Filter for Program {
    fn init(&mut self, unit: &UnitOfWork) -> Result<(), Failure> {
        self.child = Some(Child::start(&self.command, &self.environment, &self.folder, &self.info, unit)?);
        Ok(())
    }

    fn process(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let Some(child) = self.child.take() else { return Err("its program was not started".into()) };
        let one_by_one = io.is_kept_by_producer();
        let work = Work {
            child,
            silence: self.silence,
            one_by_one,
            tags: VecDeque::new(),
            last_tag: 0,
            input_open: true,
            watchdog: Watchdog::new(self.silence.map(|s| s.as_micros() as u64), 0),
            epoch: Instant::now(),
        };
        work.run(io)
    }
}

/// A unit of work of a running program.
struct Work {
    child: Child,
    silence: Option<Duration>,
    /// The producer keeps buffers for replays, so the output of each buffer must be known: the
    /// program gets one buffer at a time.
    one_by_one: bool,
    /// Tags of the buffers that the program was given and has not answered, oldest first.
    tags: VecDeque<u64>,
    last_tag: u64,
    /// More input may come.
    input_open: bool,
    watchdog: Watchdog,
    /// Time 0 of the watchdog.
    epoch: Instant,
}

impl Work {
    fn run(mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        loop {
            let (mut moved, before) = (false, self.child.has_written());
            while let Some(body) = self.child.take(|bytes| io.buffer(bytes))? {
                moved = true;
                let tag = self.tag()?;
                io.write(0, tag, body)?;
            }
            moved |= self.child.give()? || self.child.has_written() != before;
            if !self.input_open && !self.child.has_to_read() {
                self.child.close_input();
            }
            if self.child.has_ended()? {
                return self.end(io);
            }
            if moved {
                self.on_progress();
            }
            self.check(io.info().outputs > 0)?;
            let wanted = self.input_open && !self.child.has_to_read() && (!self.one_by_one || self.tags.is_empty());
            match io.read_or_poll(wanted, self.is_working(), &self.child.pipes())? {
                Next::Buffer(received) => {
                    if self.tags.len() < MAX_TAGS {
                        self.tags.push_back(received.tag);
                    }
                    self.child.offer(received.body)?;
                    self.on_progress();
                }
                Next::End => {
                    self.input_open = false;
                    self.on_progress();
                }
                Next::Nothing => {}
            }
        }
    }

    /// The tag of the program's next output: the tag of the oldest buffer that it has not answered,
    /// or else the last tag.
    fn tag(&mut self) -> Result<u64, Failure> {
        match self.tags.pop_front() {
            Some(tag) => self.last_tag = tag,
            None if self.one_by_one => {
                return Err("it wrote more buffers than it read; a stateless program must write one for each".into());
            }
            None => {}
        }
        Ok(self.last_tag)
    }

    /// Something is wanted of the program.
    fn is_working(&self) -> bool {
        self.child.has_to_read() || !self.input_open || !self.tags.is_empty()
    }

    /// Fails if the program is stuck.
    fn check(&mut self, has_outputs: bool) -> Result<(), Failure> {
        let program = ProgramState {
            closed_input: self.child.has_closed_input(),
            closed_output: self.child.has_closed_output(),
            has_outputs,
            input_open: self.input_open,
            has_to_read: self.child.has_to_read(),
            owes_output: self.one_by_one && !self.tags.is_empty(),
        };
        let Some(stuck) = self.watchdog.check(self.now_us(), program) else { return Ok(()) };
        let seconds = self.silence.unwrap_or_default().as_secs_f64();
        let why = match stuck {
            Stuck::ClosedEarly(pipe) => return Err(self.child.because(closed_early(pipe))),
            Stuck::ReadsNothing => format!("it has read nothing for {seconds} s, and a buffer waits"),
            Stuck::DoesNotEnd => {
                format!("it has written nothing for {seconds} s after its input ended, and does not end")
            }
            Stuck::WritesNothing => format!(
                "it has written nothing for {seconds} s; a stateless program must write a buffer for each that it reads"
            ),
        };
        Err(self.child.because(format!("{why}; its parameter \"silence_s\" allows more")))
    }

    fn now_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    fn on_progress(&mut self) {
        self.watchdog.on_progress(self.now_us());
    }

    /// The program has ended. Checks that it ended well, and writes the rest of its output.
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
        if let Some(pipe) = self.watchdog.closed_early().filter(|_| !self.input_open) {
            return Err(self.child.because(closed_early(pipe)));
        }
        if self.input_open || self.child.has_to_read() {
            return Err(self.child.because("it ended, with exit code 0, before its input did".to_owned()));
        }
        for body in all {
            let tag = self.tag()?;
            io.write(0, tag, body)?;
        }
        Ok(())
    }
}

fn closed_early(pipe: Pipe) -> String {
    let pipe = match pipe {
        Pipe::Input => "input",
        Pipe::Output => "output",
    };
    format!("it closed its {pipe} before its input ended")
}

#[cfg(test)]
mod tests;

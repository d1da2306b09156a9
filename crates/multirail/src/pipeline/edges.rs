//! The edges of a copy: what comes and goes on each, and what that means.

use super::filter::Stop;
use super::wire::{Head, Kind};
use crate::error::{Error, Result};
use crate::transport::{Buffer, Connection};
use multirail_proto::pipeline::Dealer;
use multirail_proto::pipeline::keep::Kept;
use std::collections::VecDeque;

/// The other end of an edge.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub filter: String,
    pub copy: usize,
    pub host: String,
}

/// An edge from a copy of a producer.
#[derive(Debug)]
pub(super) struct Input {
    /// Which of the filter's input streams.
    pub stream: usize,
    pub peer: Peer,
    /// If the producer dies, others do its work again.
    pub is_spare: bool,
    /// The producer keeps buffers until it hears that they are done.
    pub keeps: bool,
    /// It sends no more than this ahead.
    pub window: u32,
    pub connection: Box<dyn Connection>,
    /// It has ended this unit of work, or is gone.
    pub ended: bool,
    pub gone: bool,
    /// What came before its turn, while a `Go` was looked for.
    pub early: VecDeque<(Head, Buffer)>,
}

/// An output stream.
#[derive(Debug)]
pub(super) struct Output {
    pub dealer: Dealer,
    pub edges: Vec<Edge>,
    /// Buffers are kept until the consumer is done with them, for it may die and another copy do it.
    pub keeps: bool,
    /// Buffers up to this one belong to units that were given up.
    pub forgiven: u64,
}

/// An edge to a copy of a consumer.
#[derive(Debug)]
pub(super) struct Edge {
    pub peer: Peer,
    pub connection: Box<dyn Connection>,
    pub kept: Kept<(Head, Buffer)>,
    pub gone: bool,
}

impl Input {
    pub fn new(stream: usize, peer: Peer, window: u32, connection: Box<dyn Connection>) -> Self {
        Self {
            stream,
            peer,
            is_spare: false,
            keeps: false,
            window,
            connection,
            ended: false,
            gone: false,
            early: VecDeque::new(),
        }
    }

    /// The next data or end of this unit.
    pub fn next(&mut self, unit: u32, going: &mut Vec<u64>) -> Result<Option<(Head, Buffer)>> {
        let next = match self.early.pop_front() {
            Some(early) => Some(early),
            None if self.gone => return Err(Error::Closed),
            None => self.pull(going)?,
        };
        match next {
            Some((head, _)) if head.unit != unit => {
                Err(Error::Protocol(format!("a buffer of unit {} in unit {unit}", head.unit)))
            }
            next => Ok(next),
        }
    }

    /// Looks for `Go`s beyond the buffers that wait.
    pub fn look_ahead(&mut self, going: &mut Vec<u64>) -> Result<()> {
        while let Some(next) = self.pull(going)? {
            self.early.push_back(next);
            // The buffers and the end of this unit, and those of the next one.
            if self.early.len() as u64 > 2 * u64::from(self.window) + 2 {
                return Err(Error::Protocol("more buffers than the window allows".to_owned()));
            }
        }
        Ok(())
    }

    fn pull(&mut self, going: &mut Vec<u64>) -> Result<Option<(Head, Buffer)>> {
        while let Some(message) = self.connection.pull()? {
            let head = Head::of(&message)?;
            match head.kind {
                Kind::Data | Kind::End => return Ok(Some((head, message.body))),
                Kind::Go if self.keeps => going.push(head.number),
                other => return Err(Error::Protocol(format!("{other:?} from a producer"))),
            }
        }
        Ok(None)
    }

    /// Tells the producer how far a buffer is.
    pub fn answer(&mut self, kind: Kind, unit: u32, number: u64) {
        self.connection.push(Head { kind, unit, number, tag: 0 }.alone());
        // If it is lost, reading will notice.
        let _ = self.connection.flush();
    }
}

impl Output {
    /// Takes what a consumer's copy tells; `started` gets the numbers of buffers that it has started on.
    pub fn pull(&mut self, to: usize, started: &mut Vec<u64>) -> Result<()> {
        let edge = &mut self.edges[to];
        if edge.gone {
            return Ok(());
        }
        edge.connection.flush()?;
        while let Some(message) = edge.connection.pull()? {
            let head = Head::of(&message)?;
            let number = head.number;
            let fits = match head.kind {
                Kind::Started => {
                    started.push(number);
                    self.dealer.acknowledged(to).is_ok()
                }
                Kind::Ready | Kind::Done if number <= self.forgiven => true,
                Kind::Ready => {
                    edge.connection.push(Head { kind: Kind::Go, ..head }.alone());
                    edge.connection.flush()?;
                    edge.kept.release(number).is_ok()
                }
                Kind::Done => edge.kept.done(number).is_ok(),
                Kind::Data | Kind::End | Kind::Go => false,
            };
            if !fits {
                return Err(Error::Protocol(format!("{:?} of buffer {number} from a consumer", head.kind)));
            }
        }
        Ok(())
    }
}

impl Peer {
    pub fn gone(&self, cause: impl ToString) -> Stop {
        Stop::Gone { filter: self.filter.clone(), copy: self.copy, host: self.host.clone(), cause: cause.to_string() }
    }
}

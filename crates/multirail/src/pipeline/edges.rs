//! The edges of a copy: what comes and goes on each, and what that means.

use super::filter::Stop;
use super::wire::{Head, Kind};
use crate::error::{Error, Result};
use crate::transport::{Buffer, Connection, Message, Transport, Wake};
use multirail_proto::pipeline::Dealer;
use multirail_proto::pipeline::keep::{Kept, MAX_OPEN, Remembered, Seen};
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
    /// If the producer dies, others do its work again, and ask what came of it.
    pub is_spare: bool,
    /// The producer keeps buffers until it hears that they are done.
    pub keeps: bool,
    /// It sends no more than this ahead.
    pub window: u32,
    pub connection: Box<dyn Connection>,
    /// It has ended this unit of work, or is gone.
    pub ended: bool,
    pub gone: bool,
    /// What came before its turn, while questions were looked for.
    early: VecDeque<(Head, Buffer)>,
    /// Where it is a spare.
    pub remembered: Remembered,
    /// Not answered yet: origin, and the dead copy.
    pub asked: Vec<(u64, u16)>,
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

/// What is left of a connection: the other end sees that it is closed.
#[derive(Debug)]
struct Gone;

impl Connection for Gone {
    fn transport(&self) -> Transport {
        Transport::Memory
    }
    fn push(&mut self, _: Message) {}
    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }
    fn pull(&mut self) -> Result<Option<Message>> {
        Err(Error::Closed)
    }
    fn sleep(&mut self) -> Result<Wake> {
        Ok(Wake::Bell)
    }
}

impl Input {
    /// Nothing more is taken from it than what is here.
    pub fn lose(&mut self) {
        self.gone = true;
        self.connection = Box::new(Gone);
    }

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
            remembered: Remembered::default(),
            asked: Vec::new(),
        }
    }

    /// The next data or end of this unit.
    pub fn next(&mut self, unit: u32) -> Result<Option<(Head, Buffer)>> {
        let next = match self.early.pop_front() {
            Some(early) => Some(early),
            None => self.pull()?,
        };
        match next {
            Some((head, _)) if head.unit != unit => {
                Err(Error::Protocol(format!("a buffer of unit {} in unit {unit}", head.unit)))
            }
            next => Ok(next),
        }
    }

    /// Whether anything of it is still to be taken.
    pub fn is_over(&self) -> bool {
        self.gone && self.early.is_empty()
    }

    /// Looks for questions beyond the buffers that wait.
    pub fn look_ahead(&mut self) -> Result<()> {
        while let Some(next) = self.pull()? {
            self.early.push_back(next);
            // The buffers and the end of this unit, and those of the next one.
            if self.early.len() as u64 > 2 * u64::from(self.window) + 2 {
                return Err(Error::Protocol("more buffers than the window allows".to_owned()));
            }
        }
        Ok(())
    }

    fn pull(&mut self) -> Result<Option<(Head, Buffer)>> {
        while let Some(message) = self.connection.pull()? {
            let head = Head::of(&message)?;
            match (head.kind, head.replay) {
                (Kind::Data | Kind::End, _) => {
                    if self.is_spare && head.origin != 0 {
                        self.remembered.came(head.origin, head.of.into());
                    }
                    return Ok(Some((head, message.body)));
                }
                (Kind::Ask, Some(dead)) if self.is_spare && self.asked.len() < MAX_OPEN => {
                    self.asked.push((head.origin, dead));
                }
                (other, _) => return Err(Error::Protocol(format!("{other:?} from a producer"))),
            }
        }
        Ok(None)
    }

    /// Tells the producer how far a buffer is.
    pub fn answer(&mut self, head: Head) {
        self.connection.push(head.alone());
        // If it is lost, reading will notice.
        let _ = self.connection.flush();
    }
}

impl Output {
    /// A copy gets nothing more.
    pub fn lose(&mut self, to: usize) -> Vec<(u64, (Head, Buffer))> {
        self.dealer.gone(to);
        let edge = &mut self.edges[to];
        edge.gone = true;
        edge.connection = Box::new(Gone);
        edge.kept.take()
    }

    /// Takes what a consumer's copy tells.
    pub fn pull(&mut self, to: usize, told: &mut Told) -> Result<()> {
        let edge = &mut self.edges[to];
        if edge.gone {
            return Ok(());
        }
        edge.connection.flush()?;
        while let Some(message) = edge.connection.pull()? {
            let head = Head::of(&message)?;
            let fits = match head.kind {
                Kind::Started => {
                    told.started.push(head.number);
                    self.dealer.acknowledged(to).is_ok()
                }
                Kind::Done => edge.kept.done(head.number).is_ok() || head.number <= self.forgiven,
                Kind::Answer => {
                    told.answers.push(Seen {
                        origin: head.origin,
                        came: head.replay.unwrap_or(0).into(),
                        of: head.of.into(),
                    });
                    true
                }
                Kind::Data | Kind::End | Kind::Ask => false,
            };
            if !fits {
                return Err(Error::Protocol(format!("{:?} of buffer {} from a consumer", head.kind, head.number)));
            }
        }
        Ok(())
    }
}

/// What consumers told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Buffers that somebody has started on.
    pub started: Vec<u64>,
    pub answers: Vec<Seen>,
}

impl Peer {
    pub fn gone(&self, cause: impl ToString) -> Stop {
        Stop::Gone { filter: self.filter.clone(), copy: self.copy, host: self.host.clone(), cause: cause.to_string() }
    }
}

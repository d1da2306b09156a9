//! Agreeing on an edge over UCX, where it is built in.

#[cfg(not(feature = "ucx"))]
pub(super) use absent::{accept, connect};
#[cfg(feature = "ucx")]
pub(super) use present::{accept, connect};

#[cfg(feature = "ucx")]
mod present {
    use super::super::greeting::{Answer, Reply, receive, send};
    use crate::edge::connection::Connection;
    use crate::edge::ucx::Opened;
    use multirail_net as net;
    use multirail_net::error::{Error, Result};

    const FAILED: &str = "making an edge by UCX";

    /// The dialling side. `None` means that UCX does not work, and that the peer chooses again.
    pub(in crate::edge::connect) fn connect(
        stream: &mut net::Connection,
        address: &[u8],
        one_machine: bool,
        limit_bytes: u64,
    ) -> Result<Option<Box<dyn Connection>>> {
        if let Err(why) = check(stream, one_machine) {
            send(stream, &Answer(Err(why.to_owned())))?;
            return Ok(None);
        }
        let opened = Opened::new();
        let answer = opened.as_ref().map(|o| o.address().to_vec()).map_err(|error| error.to_string());
        send(stream, &Answer(answer))?;
        opened.ok().map(|opened| finish(opened, stream, address, one_machine, limit_bytes)).transpose()
    }

    /// The accepting side. After an inner error, the peer waits for another choice.
    pub(in crate::edge::connect) fn accept(
        stream: &mut net::Connection,
        one_machine: bool,
        limit_bytes: u64,
    ) -> Result<Result<Box<dyn Connection>, String>> {
        if let Err(why) = check(stream, one_machine) {
            return Ok(Err(why.to_owned()));
        }
        let opened = match Opened::new() {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error.to_string())),
        };
        send(stream, &Reply::Ucx { address: opened.address().to_vec(), one_machine })?;
        match receive(stream)? {
            Answer(Ok(address)) => finish(opened, stream, &address, one_machine, limit_bytes).map(Ok),
            Answer(Err(why)) => Ok(Err(why)),
        }
    }

    /// What leaves the machine must be encrypted, unless both sides want plaintext.
    fn check(stream: &net::Connection, one_machine: bool) -> Result<(), &'static str> {
        let allowed = one_machine || stream.is_plaintext();
        allowed.then_some(()).ok_or("UCX does not encrypt what it sends to another machine; use it with plaintext")
    }

    fn finish(
        opened: Opened,
        stream: &net::Connection,
        address: &[u8],
        one_machine: bool,
        limit_bytes: u64,
    ) -> Result<Box<dyn Connection>> {
        let life = stream.socket().try_clone().map_err(Error::io(FAILED))?;
        let made = opened.connect(address, one_machine, life, limit_bytes);
        Ok(Box::new(made.map_err(Error::io(FAILED))?))
    }
}

#[cfg(not(feature = "ucx"))]
mod absent {
    use super::super::greeting::{Answer, send};
    use crate::edge::connection::Connection;
    use multirail_net as net;
    use multirail_net::error::Result;

    const MISSING: &str = "this multirail was built without the feature `ucx`";

    pub(in crate::edge::connect) fn connect(
        stream: &mut net::Connection,
        _: &[u8],
        _: bool,
        _: u64,
    ) -> Result<Option<Box<dyn Connection>>> {
        send(stream, &Answer(Err(MISSING.to_owned())))?;
        Ok(None)
    }

    pub(in crate::edge::connect) fn accept(
        _: &mut net::Connection,
        _: bool,
        _: u64,
    ) -> Result<Result<Box<dyn Connection>, String>> {
        Ok(Err(MISSING.to_owned()))
    }
}

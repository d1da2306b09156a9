//! The server's side: connects to targets for clients.

use crate::allow::AllowList;
use crate::relay::relay;
use crate::wire::{self, ForwardAnswer, ForwardRequest, Open, Opened};
use multirail_net::permissions::Right;
use multirail_net::request::{self, Request};
use multirail_net::router::{Answering, Next, ProtocolHandler};
use multirail_net::streams::SessionStream;
use multirail_net::{Error, Session};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Within this time, a client must say what a stream is for.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// The error of a connection attempt that has none of the system.
const UNKNOWN_ERRNO: i32 = libc::ECONNABORTED;

/// Forwards connections of clients to the targets of an [`AllowList`].
#[derive(Debug)]
pub struct ForwardHandler {
    /// The reason of a refusal instead, for a server that forwards nothing.
    allowed: Result<Arc<AllowList>, String>,
}

impl ForwardHandler {
    /// A handler that connects to what `allowed` has, and to nothing else.
    pub fn new(allowed: AllowList) -> Self {
        Self { allowed: Ok(Arc::new(allowed)) }
    }

    /// A handler that tells clients why this server forwards nothing.
    pub fn refusing(why: impl Into<String>) -> Self {
        Self { allowed: Err(why.into()) }
    }
}

impl ProtocolHandler for ForwardHandler {
    fn answer<'a>(&'a self, mut session: Session, peer: SocketAddr, request: Request) -> Answering<'a> {
        Box::pin(async move {
            let ForwardRequest = request.parse()?;
            request.notes().operation("forward");
            let permitted = session.client().permissions.check(Right::Forward);
            let allowed = match permitted.and_then(|()| self.allowed.clone()) {
                Ok(allowed) => allowed,
                Err(why) => {
                    request.notes().refused(&why);
                    request::send(&mut session, &ForwardAnswer::Refused(why)).await?;
                    return Ok(Next::Request(session));
                }
            };
            request::send(&mut session, &ForwardAnswer::Ready).await?;
            let streams = session.into_streams();
            loop {
                let stream = match streams.accept().await {
                    Ok(stream) => stream,
                    Err(Error::Closed) => return Ok(Next::Done),
                    Err(error) => return Err(error),
                };
                let (allowed, notes) = (allowed.clone(), request.notes().clone());
                tokio::spawn(async move {
                    match serve(stream, &allowed).await {
                        Ok(Served { target, result }) => {
                            notes.detail(format!("{target} {result}"));
                            tracing::info!(%peer, %target, result, "forwarded");
                        }
                        Err(error) => tracing::debug!(%peer, %error, "a forwarded connection"),
                    }
                });
            }
        })
    }
}

struct Served {
    target: SocketAddr,
    result: &'static str,
}

/// Serves one stream to its end.
async fn serve(mut stream: SessionStream, allowed: &AllowList) -> io::Result<Served> {
    let Open { target } = tokio::time::timeout(OPEN_WITHIN, wire::read(&mut stream)).await??;
    if !allowed.allows(target) {
        say_last(stream, &Opened::NotAllowed).await?;
        return Ok(Served { target, result: "not allowed" });
    }
    match TcpStream::connect(target).await {
        Ok(connection) => {
            connection.set_nodelay(true)?;
            wire::write(&mut stream, &Opened::Connected).await?;
            let result = if relay(connection, stream).await.is_ok() { "ok" } else { "reset" };
            Ok(Served { target, result })
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(UNKNOWN_ERRNO);
            say_last(stream, &Opened::Failed { errno }).await?;
            Ok(Served { target, result: "failed" })
        }
    }
}

/// Answers, and keeps the stream until the client has the answer: a stream that is dropped before its
/// end is reset.
async fn say_last(mut stream: SessionStream, answer: &Opened) -> io::Result<()> {
    wire::write(&mut stream, answer).await?;
    stream.shutdown().await?;
    let _ = tokio::time::timeout(OPEN_WITHIN, stream.read(&mut [0])).await;
    Ok(())
}

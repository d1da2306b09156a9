//! `serve --metrics`: the state of a server for Prometheus.
//!
//! The answers are in the OpenMetrics text format. They are made in a thread of their own, so that a
//! server with much to do answers as well.

use anyhow::Context;
use multirail::budget::MemoryBudget;
use multirail::record::{Observer, Record};
use multirail::traffic::{Refused, traffic};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

/// The most connections at a time. Others wait in the kernel.
const MAX_CONNECTIONS: usize = 8;
/// The most bytes of a request.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// The most headers of a request.
const MAX_HEADERS: usize = 64;
/// How long a request and its answer may take together.
const TIMEOUT: Duration = Duration::from_secs(5);
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Parses the address. A port alone is on loopback.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => text.parse().map_err(|_| "write PORT or ADDRESS:PORT, for example 9717 or [::1]:9717".to_owned()),
    }
}

/// The counters of requests.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    ended: Family<ServiceResult, Counter>,
    running: Family<Service, Gauge>,
    audit_failures: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceResult {
    service: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Service {
    service: String,
}

impl Requests {
    /// The number of records that could not be written to the audit log.
    pub fn audit_failures(&self) -> Counter {
        self.audit_failures.clone()
    }
}

impl Observer for Requests {
    fn request_began(&self, protocol: multirail::protocol::ProtocolName) {
        self.running.get_or_create(&Service { service: protocol.to_string() }).inc();
    }

    fn request_ended(&self, record: &Record<'_>) {
        let service = record.protocol.to_string();
        self.running.get_or_create(&Service { service: service.clone() }).dec();
        self.ended.get_or_create(&ServiceResult { service, result: record.result().0 }).inc();
    }
}

/// What is read at the time of an answer.
#[derive(Debug)]
struct State {
    memory: MemoryBudget,
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let traffic = traffic();
        let mut show = |name: &str, help: &str, metric: &dyn ShowMetric| metric.show(&mut encoder, name, help);
        show("sessions", "Sessions with other hosts.", &ConstGauge::new(traffic.sessions as i64))?;
        show("rails_up", "Rails of these sessions that have a connection.", &ConstGauge::new(traffic.rails_up as i64))?;
        show("sent_bytes", "Bytes of messages sent.", &ConstCounter::new(traffic.sent_bytes))?;
        show("received_bytes", "Bytes of messages received.", &ConstCounter::new(traffic.received_bytes))?;
        let (used, limit) = (self.memory.used_bytes(), self.memory.limit_bytes());
        show("memory_used_bytes", "Memory that requests use of their budget.", &ConstGauge::new(used as i64))?;
        show("memory_limit_bytes", "The budget of memory for requests.", &ConstGauge::new(limit as i64))?;
        let help = "Connections that were refused.";
        let counter = ConstCounter::new(0_u64);
        let mut family = encoder.encode_descriptor("refused_connections", help, None, counter.metric_type())?;
        for reason in Refused::ALL {
            ConstCounter::new(reason.count()).encode(family.encode_family(&[("reason", reason.name())])?)?;
        }
        Ok(())
    }
}

/// A number without labels.
trait ShowMetric {
    fn show(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> Result<(), std::fmt::Error>;
}

impl<M: EncodeMetric> ShowMetric for M {
    fn show(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> Result<(), std::fmt::Error> {
        self.encode(encoder.encode_descriptor(name, help, None, self.metric_type())?)
    }
}

/// A listener that does not answer yet.
pub struct Metrics {
    listener: TcpListener,
}

impl Metrics {
    pub fn bind(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("--metrics {address}"))?;
        listener.set_nonblocking(true).context("--metrics")?;
        Ok(Self { listener })
    }

    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        self.listener.local_addr().context("--metrics")
    }

    /// Answers until the process ends.
    pub fn answer(self, requests: &Requests, memory: MemoryBudget) -> anyhow::Result<()> {
        let mut registry = Registry::with_prefix("multirail");
        registry.register("requests", "Requests that have ended.", requests.ended.clone());
        registry.register("requests_running", "Requests that run.", requests.running.clone());
        let help = "Records that could not be written to the audit log.";
        registry.register("audit_failures", help, requests.audit_failures.clone());
        registry.register_collector(Box::new(State { memory }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("--metrics")?;
        let run = move || {
            if let Err(error) = runtime.block_on(accept(self.listener, Arc::new(registry))) {
                tracing::error!(%error, "metrics are not answered any more");
            }
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(run).context("--metrics")?;
        Ok(())
    }
}

async fn accept(listener: TcpListener, registry: Arc<Registry>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return Ok(()) };
        let mut stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let registry = registry.clone();
        tokio::spawn(async move {
            let _place = place;
            // A client that sends nothing, or does not read, loses its connection.
            let _ = tokio::time::timeout(TIMEOUT, serve(&mut stream, &registry)).await;
        });
    }
}

async fn serve(stream: &mut tokio::net::TcpStream, registry: &Registry) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(1024);
    let head = loop {
        match head(&request) {
            Head::Incomplete if request.len() >= MAX_REQUEST_BYTES => break Head::TooLong,
            Head::Incomplete => {}
            head => break head,
        }
        let room = (MAX_REQUEST_BYTES - request.len()) as u64;
        if (&mut *stream).take(room).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    let (status, format, body) = match head {
        Head::Metrics { .. } => {
            let mut body = String::new();
            match encode(&mut body, registry) {
                Ok(()) => ("200 OK", FORMAT, body),
                Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
            }
        }
        Head::Elsewhere => ("404 Not Found", "text/plain", "the metrics are at /metrics\n".to_owned()),
        Head::Method => ("405 Method Not Allowed", "text/plain", "use GET\n".to_owned()),
        Head::TooLong => ("431 Request Header Fields Too Large", "text/plain", String::new()),
        Head::Incomplete | Head::Invalid => ("400 Bad Request", "text/plain", String::new()),
    };
    let length = body.len();
    let head_only = matches!(head, Head::Metrics { head_only: true });
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {format}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{}",
        if head_only { "" } else { &body }
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// What the bytes of a request are so far.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    Incomplete,
    Metrics { head_only: bool },
    Elsewhere,
    Method,
    TooLong,
    Invalid,
}

fn head(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Head::Incomplete,
        Err(httparse::Error::TooManyHeaders) => Head::TooLong,
        Err(_) => Head::Invalid,
        Ok(httparse::Status::Complete(_)) => match (request.method, request.path) {
            (Some(method @ ("GET" | "HEAD")), Some(path)) => match path.split('?').next() {
                Some("/metrics") => Head::Metrics { head_only: method == "HEAD" },
                _ => Head::Elsewhere,
            },
            _ => Head::Method,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        for (text, expected) in [
            ("", Head::Incomplete),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", Head::Incomplete),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Head::Metrics { head_only: false }),
            ("HEAD /metrics?a=b HTTP/1.0\r\n\r\n", Head::Metrics { head_only: true }),
            ("GET / HTTP/1.1\r\n\r\n", Head::Elsewhere),
            ("POST /metrics HTTP/1.1\r\n\r\n", Head::Method),
            ("\x16\x03\x01 \r\n\r\n", Head::Invalid),
        ] {
            assert_eq!(head(text.as_bytes()), expected, "{text:?}");
        }
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(head(many.as_bytes()), Head::TooLong);
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(address("9717"), Ok(([127, 0, 0, 1], 9717).into()));
        assert_eq!(address("0.0.0.0:1"), Ok(([0, 0, 0, 0], 1).into()));
        assert!(address("localhost").is_err());
    }
}

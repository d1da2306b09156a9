//! `multirail serve`.

mod audit;
mod confine;
mod metrics;
mod service;

use crate::keys::KeysArgs;
use crate::limit::LimitArgs;
use crate::printer::{self, Printer};
use crate::usage::Usage;
use anyhow::Context;
use audit::Audit;
use confine::{Confined, confine};
use metrics::{Metrics, Requests};
use multirail::forward::AllowList;
use multirail::pipeline::Filters;
use multirail::protocol::ProtocolName;
use multirail::record::{Observer, Record};
use multirail::server::Server;
use multirail::session::ListenConfig;
use multirail::stop::Stop;
use multirail::{Token, server, token};
use serde::Serialize;
pub use service::notify_ready;
use service::{Attendant, Reload, passed_listener};
use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Serve files, broadcasts, pipelines and benchmarks to other hosts
#[derive(clap::Args)]
#[command(after_help = "Example:\n  multirail token token\n  multirail serve --root /data --token-file token")]
pub struct ServeArgs {
    /// The address to listen on [default: all addresses, port 7717]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// The folder that clients can read and write; they cannot leave it
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// A file with a token that lets clients in; `-` reads the first line of stdin and ends the
    /// server at the end of stdin
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Receive and send data unencrypted: everyone on the path can read and change it. Clients must
    /// say so, too
    #[arg(long)]
    plaintext: bool,
    #[command(flatten)]
    keys: KeysArgs,
    /// Run programs as filters of pipelines; every client that is let in can then run any program as
    /// the user of this server
    #[arg(long)]
    allow_programs: bool,
    /// Connect to TARGETS for clients of `multirail run`, `connect` and `forward`: own for this host's
    /// addresses, ADDRESS or ADDRESS/BITS, with :PORT or :PORT-PORT behind it, separated by commas
    #[arg(long, value_name = "TARGETS", num_args = 0..=1, require_equals = true, default_missing_value = "own")]
    allow_forward: Option<AllowList>,
    /// The memory that benchmarks and waiting queries of clients use together, and the longest
    /// buffer of a pipeline
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = multirail_proto::units::parse_size)]
    memory_limit: u64,
    /// The most sessions and connections at the same time; beyond it, an idle one makes room
    #[arg(long, value_name = "N", default_value = "256")]
    max_sessions: NonZero<u16>,
    #[command(flatten)]
    limit: LimitArgs,
    /// Append a line of JSON for each request to FILE: who, when, what, which paths, how many bytes
    /// and the result; `-` writes to stderr. SIGHUP opens the file again
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics, to everyone who reaches it; a PORT
    /// alone is on loopback
    #[arg(long, value_name = "ADDR:PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// How long requests may go on after SIGTERM or SIGINT; a second signal ends them
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=86400))]
    drain: u32,
}

/// The reason that clients get if they ask for a program. The user of a client may be another
/// person than the one who starts the server, so it says what to do.
const NO_PROGRAMS: &str = "this host runs no programs for others; start its server with --allow-programs";
/// The same for a connection.
const NO_FORWARDS: &str = "start it with --allow-forward";

#[derive(Serialize)]
struct Ready {
    listening: SocketAddr,
    #[serde(serialize_with = "printer::lossy")]
    root: PathBuf,
    token: bool,
    /// Whether the kernel lets the process use nothing but the folder.
    confined: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
}

/// Shows records to the metrics and the audit log.
struct Records {
    requests: Requests,
    audit: Option<Arc<Audit>>,
}

impl Observer for Records {
    fn request_began(&self, protocol: ProtocolName) {
        self.requests.request_began(protocol);
    }

    fn request_ended(&self, record: &Record<'_>) {
        self.requests.request_ended(record);
        if let Some(audit) = &self.audit {
            audit.request_ended(record);
        }
    }
}

pub fn run(args: ServeArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let passed = passed_listener()?;
    if passed.is_some() && args.listen.is_some() {
        return Err(Usage::of("--listen has no effect on the socket of a service manager; leave one of them out"));
    }
    let on_stdin = args.token_file.as_deref() == Some(Path::new("-"));
    let token = match &args.token_file {
        Some(_) if on_stdin => Some(read_stdin_token()?),
        file => file.as_deref().map(Token::from_file).transpose()?,
    };
    let root = args.root.canonicalize().with_context(|| format!("--root {}", args.root.display()))?;
    anyhow::ensure!(root.is_dir(), "--root {} is not a folder", root.display());
    let address = match &args.listen {
        Some(text) => super::listen_address(text, server::DEFAULT_PORT)?,
        None => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, server::DEFAULT_PORT)),
    };
    let with_token = token.is_some();
    let config = args.keys.config(token)?.plaintext(args.plaintext);
    let authorized_keys = config.authorized_keys.clone();
    super::raise_file_limit();
    let requests = Requests::default();
    let metrics = args.metrics.map(Metrics::bind).transpose()?;
    let audit = args.audit.as_deref().map(|file| open_audit(file, &requests)).transpose()?;
    let keys = args.keys.directory().ok();
    let readable: Vec<&Path> = keys.as_deref().into_iter().chain(args.limit.file()).collect();
    // Before any other thread exists, since those that exist would not be confined.
    let confined = !args.allow_programs && confine_server(&root, args.audit.as_deref(), &readable, printer)?;
    let mut listen =
        ListenConfig::new(address, config.rate_limit(args.limit.start()?).background(args.limit.background));
    if let Some(passed) = passed {
        listen = listen.on_socket(passed);
    }
    let stdin_ended = if on_stdin { Some(end_of_stdin()?) } else { None };
    let filters = Filters::built_in(&root);
    let filters = match args.allow_programs {
        true => filters.with_programs(&root),
        false => filters.without("program", NO_PROGRAMS),
    };
    let stop = Stop::new();
    let server = Server::new(listen, root.clone()).with_filters(filters).memory_limit(args.memory_limit);
    let server = server.max_sessions(args.max_sessions.get().into()).stopped_by(stop.clone());
    let server = match args.allow_forward {
        Some(allowed) => server.forwarding(allowed),
        None => server.not_forwarding(NO_FORWARDS),
    };
    let metrics_address = metrics.as_ref().map(Metrics::address).transpose()?;
    if let Some(metrics) = metrics {
        metrics.answer(&requests, server.memory())?;
    }
    let mut reload = Reload::default();
    reload.add("the authorized keys", move || Ok(authorized_keys.reload()?));
    if let Some(audit) = audit.clone() {
        reload.add("the audit log", move || Ok(audit.reopen()?));
    }
    let server = server.observer(Arc::new(Records { requests, audit }));
    let drain = Duration::from_secs(args.drain.into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let attendant = Attendant::new(reload, stop, drain)?;
        let serve = server.serve(|listening| {
            let ready = Ready { listening, root, token: with_token, confined, metrics: metrics_address };
            printer.row(&ready, |r| {
                let clients =
                    if r.token { "clients with the token or a known key" } else { "clients with a known key" };
                format!("serving {} to {clients} on {}", r.root.display(), r.listening)
            });
            notify_ready();
        });
        let ended = async {
            match stdin_ended {
                Some(ended) => drop(ended.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = serve => Ok(served?),
            () = ended => anyhow::Ok(()),
            never = attendant.attend() => never,
        }
    })?;
    // A request of which nothing is left but its thread does not hold up the end.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

fn open_audit(file: &Path, requests: &Requests) -> anyhow::Result<Arc<Audit>> {
    let audit = Audit::open(file, requests.audit_failures());
    Ok(Arc::new(audit.with_context(|| format!("--audit {}", file.display()))?))
}

/// Confines the process to what it serves, where the kernel can do that; false where it cannot.
fn confine_server(root: &Path, audit: Option<&Path>, readable: &[&Path], printer: &Printer) -> anyhow::Result<bool> {
    let audit = audit.filter(|file| *file != Path::new("-")).map(std::path::absolute).transpose().context("--audit")?;
    let logs = audit.as_deref().and_then(Path::parent);
    let confined = confine(root, logs, readable)? == Confined::Yes;
    if !confined {
        printer.note("this kernel has no Landlock, so only the server itself keeps clients within the folder");
    }
    Ok(confined)
}

/// Reads the token from stdin. A command line is no place for a token, because all users of the
/// host can read it.
fn read_stdin_token() -> anyhow::Result<Token> {
    let mut line = Vec::new();
    let longest = token::MAX_BYTES as u64 + 1;
    std::io::stdin().lock().take(longest).read_until(b'\n', &mut line).context("cannot read the token from stdin")?;
    Token::from_secret(&line).context("the token on stdin")
}

/// Completes at the end of stdin. The process that started the server keeps stdin open as long as
/// it needs the server. The end of an ssh session closes it.
pub(super) fn end_of_stdin() -> anyhow::Result<oneshot::Receiver<()>> {
    let (end_sender, end_receiver) = oneshot::channel();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(end_sender);
    })?;
    Ok(end_receiver)
}

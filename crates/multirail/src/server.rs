//! The server: joins the products' handlers behind one listener.

use multirail_net::Result;
use multirail_net::budget::MemoryBudget;
use multirail_net::probe::{PROBE, ProbeHandler};
use multirail_net::record::Observer;
use multirail_net::router::Router;
use multirail_net::session::{ListenConfig, Listener};
use multirail_net::stop::Stop;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a server listens if nothing else is said.
pub use multirail_net::DEFAULT_PORT;

/// A server of every product that this build has.
///
/// ```
/// use multirail::server::Server;
/// use multirail::session::ListenConfig;
/// use multirail::{Config, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listen = ListenConfig::new(([127, 0, 0, 1], 0), Config::new());
/// let server = Server::new(listen, std::env::temp_dir());
/// let (ready, address) = tokio::sync::oneshot::channel();
/// tokio::spawn(server.serve(|address| ready.send(address).expect("it is waited for")));
///
/// let session = Session::connect(&address.await?.to_string(), Config::new()).await?;
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    listen: ListenConfig,
    root: PathBuf,
    memory: MemoryBudget,
    max_sessions: Option<usize>,
    observer: Option<Arc<dyn Observer>>,
    stop: Stop,
    #[cfg(feature = "multicast")]
    attendance: Option<Arc<multirail_multicast::attend::Attendance>>,
    #[cfg(feature = "pipeline")]
    filters: Option<multirail_pipeline::Filters>,
    /// What it connects to for clients, or the reason why nothing.
    #[cfg(feature = "forward")]
    forwards: std::result::Result<multirail_forward::AllowList, String>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listen", &self.listen).field("root", &self.root).finish_non_exhaustive()
    }
}

impl Server {
    /// A server whose clients may read and write the folder `root`, and nothing outside it.
    pub fn new(listen: ListenConfig, root: PathBuf) -> Self {
        Self {
            listen,
            root,
            memory: MemoryBudget::default(),
            max_sessions: None,
            observer: None,
            stop: Stop::new(),
            #[cfg(feature = "multicast")]
            attendance: None,
            #[cfg(feature = "pipeline")]
            filters: None,
            #[cfg(feature = "forward")]
            forwards: Err("it was started without targets".to_owned()),
        }
    }

    /// Lets the root of a broadcast ask the server to end with it: `attendance` tells when.
    #[cfg(feature = "multicast")]
    #[must_use]
    pub fn attending(mut self, attendance: Arc<multirail_multicast::attend::Attendance>) -> Self {
        self.attendance = Some(attendance);
        self
    }

    /// Limits the memory that benchmarks of clients use together, and the length of a pipeline's buffers;
    /// default [`MemoryBudget::DEFAULT_BYTES`].
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory = MemoryBudget::new(bytes);
        self
    }

    /// Limits the sessions and connections that are served at the same time; default 256
    /// ([`Router::max_sessions`]).
    #[must_use]
    pub fn max_sessions(mut self, count: usize) -> Self {
        self.max_sessions = Some(count);
        self
    }

    /// The memory budget of the server, for showing how much of it is in use.
    pub fn memory(&self) -> MemoryBudget {
        self.memory.clone()
    }

    /// Sets what gets a record of each request ([`Router::observer`]); default nothing.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets what ends the server ([`Router::stopped_by`]); default nothing.
    #[must_use]
    pub fn stopped_by(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Sets the filters for pipelines of clients; default the built-in ones.
    #[cfg(feature = "pipeline")]
    #[must_use]
    pub fn with_filters(mut self, filters: multirail_pipeline::Filters) -> Self {
        self.filters = Some(filters);
        self
    }

    /// Sets what the server connects to for clients; default nothing.
    #[cfg(feature = "forward")]
    #[must_use]
    pub fn forwarding(mut self, allowed: multirail_forward::AllowList) -> Self {
        self.forwards = Ok(allowed);
        self
    }

    /// Sets the reason that clients get if the server connects to nothing for them; default that it was started without
    /// targets.
    #[cfg(feature = "forward")]
    #[must_use]
    pub fn not_forwarding(mut self, why: impl Into<String>) -> Self {
        self.forwards = Err(why.into());
        self
    }

    /// Serves until the listener fails or the server is [stopped](Server::stopped_by). `ready` is called once, with the address that the server
    /// listens on.
    ///
    /// # Errors
    ///
    /// Those of [`Listener::bind`], or [`crate::Error::Closed`] when the listener has failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops accepting. Sessions that have begun go on.
    pub async fn serve(self, ready: impl FnOnce(SocketAddr)) -> Result<()> {
        #[cfg(feature = "files")]
        multirail_files::remove_abandoned(&self.root);
        let router = self.router();
        let listener = Listener::bind(self.listen).await?;
        ready(listener.address());
        router.serve(listener).await
    }

    /// One line a protocol: here, and only here, all products are known.
    fn router(&self) -> Router {
        let router = Router::new().stopped_by(self.stop.clone());
        let router = match &self.observer {
            Some(observer) => router.observer(observer.clone()),
            None => router,
        };
        let router = match self.max_sessions {
            Some(count) => router.max_sessions(count),
            None => router,
        };
        let router = router.register(PROBE, Arc::new(ProbeHandler::new(self.memory.clone())));
        #[cfg(feature = "files")]
        let router =
            router.register(multirail_files::FILES, Arc::new(multirail_files::FilesHandler::new(self.root.clone())));
        #[cfg(feature = "multicast")]
        let router = {
            use multirail_multicast::{MULTICAST, MulticastHandler};
            let handler = MulticastHandler::new(&self.root, self.listen.session.clone(), self.attendance.clone());
            router.register(MULTICAST, Arc::new(handler))
        };
        #[cfg(feature = "pipeline")]
        let router = {
            use multirail_pipeline::{Filters, PIPELINE, PIPELINE_EDGE, PipelineHandler};
            let filters = self.filters.clone().unwrap_or_else(|| Filters::built_in(&self.root));
            let handler = PipelineHandler::new(filters, self.listen.session.clone()).memory_budget(self.memory.clone());
            router.register(PIPELINE_EDGE, Arc::new(handler.edges())).register(PIPELINE, Arc::new(handler))
        };
        #[cfg(feature = "forward")]
        let router = {
            use multirail_forward::{FORWARD, ForwardHandler};
            let handler = match &self.forwards {
                Ok(allowed) => ForwardHandler::new(allowed.clone()),
                Err(why) => ForwardHandler::refusing(why),
            };
            router.register(FORWARD, Arc::new(handler))
        };
        #[cfg(feature = "bench")]
        let router = {
            use crate::bench::{BENCH, BENCH_EDGE, BenchHandler, edges};
            router
                .register(BENCH, Arc::new(BenchHandler::new(self.memory.clone())))
                .register(BENCH_EDGE, Arc::new(edges()))
        };
        router
    }
}

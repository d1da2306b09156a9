//! The relay of a cgroup, and its sessions.

use super::error::CgroupError;
use super::redirect::Redirect;
use crate::client::{ForwardError, Forwarder};
use crate::loopback;
use crate::relay::{relay, relay_plainly};
use crate::via::Via;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How often a session is looked at. Connections that begin after its end and before the next look are
/// reset.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a server that could not be reached is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What happens to a server, for the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerState<'a> {
    /// Connections to its host go through the session from now on.
    Connected,
    /// Connections to its host go out plainly. It is tried again after two seconds.
    Unreachable(&'a ForwardError),
    /// The session is over, and its connections were reset.
    Lost,
}

/// What tells the user of a server.
type Tell = dyn Fn(&str, ServerState<'_>) + Send + Sync;

/// A relay for the connections of a cgroup.
#[derive(Debug)]
pub struct CgroupRelay {
    redirect: Redirect,
    listeners: [TcpListener; 2],
    /// The sessions by the addresses of their servers, the latest last. Two servers may be on one host. No list is empty,
    /// and these addresses are the ones that are redirected.
    sessions: RwLock<HashMap<IpAddr, Vec<Arc<Forwarder>>>>,
}

impl CgroupRelay {
    /// Attaches the BPF program to the cgroup at `path`. It needs a runtime, and redirects nothing yet.
    ///
    /// # Errors
    ///
    /// If this kernel or this user cannot do that, `path` is no cgroup, or this process is in it.
    pub fn attach(path: &Path) -> Result<Self, CgroupError> {
        let open = |cause| CgroupError::Open { path: path.to_owned(), cause };
        let cgroup = File::open(path).map_err(open)?;
        if !is_cgroup2(&cgroup).map_err(open)? {
            return Err(CgroupError::NotACgroup { path: path.to_owned() });
        }
        if has_process(path, std::process::id()).map_err(open)? {
            return Err(CgroupError::IsOwn { path: path.to_owned() });
        }
        let listeners = loopback::listeners()?;
        let [port4, port6] = [listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()];
        Ok(Self { redirect: Redirect::attach(&cgroup, [port4, port6])?, listeners, sessions: RwLock::default() })
    }

    /// Relays until the future is dropped. `tell` is called with a server's name when its state changes; `is_ready` once,
    /// when each server has been connected or could not be.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future detaches the program and resets all connections.
    pub async fn run(
        self,
        servers: Vec<Via>,
        tell: impl Fn(&str, ServerState<'_>) + Send + Sync + 'static,
        is_ready: impl FnOnce(),
    ) {
        let (this, tell): (_, Arc<Tell>) = (Arc::new(self), Arc::new(tell));
        let (tried, mut untried) = tokio::sync::mpsc::channel::<()>(1);
        // Ends all tasks with this future.
        let mut tasks = JoinSet::new();
        for server in servers {
            tasks.spawn(this.clone().keep_connected(server, tell.clone(), tried.clone()));
        }
        for index in 0..this.listeners.len() {
            tasks.spawn(this.clone().accept(index));
        }
        drop(tried);
        // Ready when all senders are gone.
        let _ = untried.recv().await;
        is_ready();
        while tasks.join_next().await.is_some() {}
    }

    /// Keeps a session to a server, and redirects connections to its host while there is one.
    async fn keep_connected(self: Arc<Self>, server: Via, tell: Arc<Tell>, tried: tokio::sync::mpsc::Sender<()>) {
        let mut tried = Some(tried);
        let mut was_reachable = true;
        loop {
            match server.session().await {
                Ok(session) => {
                    was_reachable = true;
                    let addresses = addresses_of(server.host(), &session).await;
                    self.add(&addresses, &session);
                    tell(server.host(), ServerState::Connected);
                    tried = None;
                    while !session.is_over() {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                    self.remove(&addresses, &session);
                    tell(server.host(), ServerState::Lost);
                }
                Err(error) => {
                    if std::mem::take(&mut was_reachable) {
                        tell(server.host(), ServerState::Unreachable(&error));
                    }
                    drop(tried.take());
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    fn add(&self, addresses: &[IpAddr], session: &Arc<Forwarder>) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            sessions.entry(*address).or_default().push(session.clone());
            if let Err(error) = self.redirect.add_host(*address) {
                tracing::warn!(%address, %error, "connections to it go out plainly");
            }
        }
    }

    fn remove(&self, addresses: &[IpAddr], session: &Arc<Forwarder>) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            let Some(of_address) = sessions.get_mut(address) else { continue };
            of_address.retain(|other| !Arc::ptr_eq(other, session));
            if of_address.is_empty() {
                sessions.remove(address);
                self.redirect.remove_host(*address);
            }
        }
    }

    /// The latest session to a server at this address that is not over.
    fn session_to(&self, address: IpAddr) -> Option<Arc<Forwarder>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&address)?.iter().rev().find(|session| !session.is_over()).cloned()
    }

    async fn accept(self: Arc<Self>, index: usize) {
        let mut relays = JoinSet::new();
        loop {
            let (connection, own) = tokio::select! {
                accepted = loopback::accept(&self.listeners[index]) => accepted,
                Some(_) = relays.join_next() => continue,
            };
            // Other programs of this host may connect as well; nothing was redirected then.
            let Some(target) = self.redirect.take_target(own) else { continue };
            relays.spawn(self.clone().relay(connection, target));
        }
    }

    /// Relays a connection to its end.
    async fn relay(self: Arc<Self>, connection: TcpStream, target: SocketAddr) {
        let session = self.session_to(target.ip());
        // The program learns that the connection has failed, and not that it has ended.
        let _ = connection.set_zero_linger();
        let Some(session) = session else { return };
        let stream = match session.open(target).await {
            Ok(stream) => stream,
            Err(error @ ForwardError::NotAllowed { .. }) => {
                tracing::info!(%target, %error, "goes out plainly");
                if let Ok(plain) = TcpStream::connect(target).await {
                    relay_plainly(connection, plain).await;
                }
                return;
            }
            Err(error) => return tracing::info!(%target, %error, "not forwarded"),
        };
        drop(session);
        tracing::info!(%target, "forwarded");
        let _ = connection.set_nodelay(true);
        if let Err(error) = relay(connection, stream).await {
            tracing::debug!(%target, %error, "a forwarded connection");
        }
    }
}

/// The addresses of a server's host: those of its name, and those to which the session has a rail.
async fn addresses_of(host: &str, session: &Forwarder) -> Vec<IpAddr> {
    let mut addresses = session.addresses().to_vec();
    let named = tokio::net::lookup_host(host).await.into_iter().flatten();
    addresses.extend(named.map(|address| address.ip().to_canonical()));
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn is_cgroup2(folder: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the kernel writes the structure.
    if unsafe { libc::fstatfs(folder.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so it is initialised.
    Ok(unsafe { found.assume_init() }.f_type == libc::CGROUP2_SUPER_MAGIC)
}

/// Whether a process is in a cgroup or in one below it.
fn has_process(cgroup: &Path, process: u32) -> io::Result<bool> {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs"));
    // The list of a threaded cgroup cannot be read.
    if processes.unwrap_or_default().lines().any(|line| line.parse() == Ok(process)) {
        return Ok(true);
    }
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        // A cgroup may be removed meanwhile.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && has_process(&entry.path(), process).unwrap_or(false) {
            return Ok(true);
        }
    }
    Ok(false)
}

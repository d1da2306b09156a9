//! SIGINT, SIGTERM and SIGHUP: a command cleans up before it ends.

use std::sync::Arc;
use tokio::sync::Notify;

/// Handles signals from now on: the first one notifies, the second one ends the process at once.
///
/// It must be called before other threads are started.
pub fn listen() -> std::io::Result<Arc<Notify>> {
    let notify = Arc::new(Notify::new());
    let notifier = notify.clone();
    // SAFETY: sigemptyset initialises the set before its use, and the set outlives the calls.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        // Threads that start later inherit the mask, so only the thread below receives the signals.
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for times in 0.. {
            let mut signal = 0;
            // SAFETY: the set is initialised, and both pointers outlive the call.
            if unsafe { libc::sigwait(&set, &mut signal) } != 0 {
                return;
            }
            if times > 0 {
                std::process::exit(128 + signal);
            }
            notifier.notify_one();
        }
    })?;
    Ok(notify)
}

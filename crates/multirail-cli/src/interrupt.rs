//! Ctrl-C and its like, so that what is running can clean up.

use std::sync::Arc;
use tokio::sync::Notify;

/// From now on the first interrupt notifies; a second one ends the process at once. Call it before other threads are started.
pub fn listen() -> std::io::Result<Arc<Notify>> {
    let notify = Arc::new(Notify::new());
    let told = notify.clone();
    // SAFETY: the set is initialised by sigemptyset before it is used, and all pointers are valid.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        // Blocked in all threads that are started later, so that only the one below gets them.
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for times in 0.. {
            let mut signal = 0;
            // SAFETY: both pointers are valid.
            if unsafe { libc::sigwait(&set, &mut signal) } != 0 {
                return;
            }
            if times > 0 {
                std::process::exit(128 + signal);
            }
            told.notify_one();
        }
    })?;
    Ok(notify)
}

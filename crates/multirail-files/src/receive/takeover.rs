//! Unfinished files that a session of this process holds although its client is gone.
//!
//! A session outlives its connections for a while, since they may come back. A client that was killed
//! and started again has a new session, and wants to continue the file that the old one holds. If the
//! old one has no connection any more, it gives the file up.

use multirail_net::session::Watch;
use multirail_net::sync::lock;
use multirail_tree::dir::Dir;
use multirail_tree::journal::Identity;
use multirail_tree::part::Part;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// How long the kernel may take to tell that the client is gone, and the old session to end.
const WAIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Device and inode of an unfinished file.
type Inode = (u64, u64);

/// The unfinished files of this process.
static HOLDERS: LazyLock<Mutex<HashMap<Inode, Holder>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Holder {
    session: Watch,
    stop: Arc<Notify>,
}

/// An unfinished file that is held. Dropping it takes it from the list.
#[derive(Debug)]
pub(super) struct Held {
    inode: Inode,
    /// Is notified when another session wants the file.
    pub stop: Arc<Notify>,
}

/// Notes that `session` holds the unfinished `file`.
pub(super) fn hold(file: &File, session: Watch) -> Option<Held> {
    let stat = file.metadata().ok()?;
    let (inode, stop) = ((stat.dev(), stat.ino()), Arc::<Notify>::default());
    lock(&HOLDERS).insert(inode, Holder { session, stop: stop.clone() });
    Some(Held { inode, stop })
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&HOLDERS).remove(&self.inode);
    }
}

/// Waits until the unfinished file of `name` can be continued, if a session without connections holds
/// it. A session that lives keeps it.
pub(super) async fn wait(dir: &Dir, name: &OsStr, identity: &Identity) {
    let end = tokio::time::Instant::now() + WAIT;
    while let Some(inode) = Part::held(dir, name, identity)
        && tokio::time::Instant::now() < end
    {
        if let Some(holder) = lock(&HOLDERS).get(&inode)
            && holder.session.rails().iter().all(|rail| rail.channels == 0)
        {
            holder.stop.notify_one();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

//! The identity of processes, and their priority.

use serde::{Deserialize, Serialize};

/// The fields of /proc/PID/stat between the state of the process and its start time.
const FIELDS_BEFORE_START: usize = 18;

/// A process. The start time distinguishes it from a later process with the same PID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    pid: u32,
    start_ticks: u64,
}

impl ProcessIdentity {
    pub(crate) fn this_process() -> Self {
        Self::of(std::process::id())
    }

    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, start_ticks: start_ticks(pid).unwrap_or(0) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// The 22nd field of /proc/PID/stat. `None` if there is no such process, or if it is a zombie.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name of the command, which may contain spaces. It ends with the last
    // parenthesis.
    let (_, after_command) = stat.rsplit_once(')')?;
    let mut fields = after_command.split_whitespace();
    (fields.next()? != "Z").then(|| fields.nth(FIELDS_BEFORE_START)?.parse().ok())?
}

/// Gives the calling thread, and the threads and processes that it starts later, the lowest
/// real-time priority. Where that is not permitted, it gets the highest other priority.
///
/// It is for short work that must happen on time although the hosts of a lab use all processors.
pub fn raise_priority() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel only reads the parameter, which outlives the call.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) < 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_one_with_its_pid_is_not() {
        let this = ProcessIdentity::this_process();
        assert!(this.is_alive());
        assert!(!ProcessIdentity { start_ticks: this.start_ticks - 1, ..this }.is_alive());
    }
}

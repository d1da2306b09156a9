//! Broadcasts in a Slurm job: the environment names the hosts.
//!
//! Every task runs the same command. Task 0 is the root; one task on each other node receives;
//! further tasks have nothing to do.

use super::MAX_HOSTS;
use std::collections::BTreeMap;

/// The role of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It has the data and invites the others.
    Root,
    /// It serves until the broadcast is over.
    Receiver,
    /// Another task of its node takes part; this one does nothing.
    Spare,
}

/// A task of a Slurm step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The role.
    pub role: Role,
    /// The nodes of the step, the root's first.
    pub nodes: Vec<String>,
    /// The node of the task.
    pub node: String,
}

/// Why the environment does not name the hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlurmError {
    /// A job script that does not start tasks.
    #[error(
        "this is a Slurm job, but not a task of srun; start one task on each node with srun, or give a list of hosts"
    )]
    NoTask,
    /// A variable is missing or not a number.
    #[error(
        "{name} is {value:?} in the environment; srun sets it to a number: start the command with srun, or give a list of hosts"
    )]
    Variable {
        /// The variable.
        name: &'static str,
        /// The value; empty if it is missing.
        value: String,
    },
    /// The list of nodes cannot be read.
    #[error("{name} cannot be read: {error}; give a list of hosts")]
    Nodelist {
        /// The variable.
        name: &'static str,
        /// The cause.
        error: NodelistError,
    },
    /// The variables contradict each other.
    #[error("{0}; they may have been changed since srun set them: give a list of hosts")]
    Contradiction(String),
}

impl Task {
    /// Reads the environment; `None` outside Slurm.
    ///
    /// # Errors
    ///
    /// [`SlurmError`] names the variable that is missing or wrong.
    pub fn from_env(env: &BTreeMap<String, String>) -> Result<Option<Task>, SlurmError> {
        if !env.contains_key("SLURM_JOB_ID") && !env.contains_key("SLURM_PROCID") {
            return Ok(None);
        }
        // A batch script has SLURM_PROCID, too, but is no step. All versions still set the older
        // spelling.
        if !env.contains_key("SLURM_STEP_ID") && !env.contains_key("SLURM_STEPID") {
            return Err(SlurmError::NoTask);
        }
        let number = |name: &'static str| {
            let value = env.get(name).cloned().unwrap_or_default();
            value.parse::<usize>().map_err(|_| SlurmError::Variable { name, value })
        };
        let (task, node, local) = (number("SLURM_PROCID")?, number("SLURM_NODEID")?, number("SLURM_LOCALID")?);
        // A step may have fewer nodes than its job.
        let name = if env.contains_key("SLURM_STEP_NODELIST") { "SLURM_STEP_NODELIST" } else { "SLURM_JOB_NODELIST" };
        let list = env.get(name).map(String::as_str).unwrap_or_default();
        let nodes = expand(list).map_err(|error| SlurmError::Nodelist { name, error })?;
        let Some(own) = nodes.get(node).cloned() else {
            let count = nodes.len();
            return Err(SlurmError::Contradiction(format!("SLURM_NODEID is {node} and {name} has {count} nodes")));
        };
        if let Ok(tasks) = number("SLURM_NTASKS")
            && task >= tasks
        {
            return Err(SlurmError::Contradiction(format!("SLURM_PROCID is {task} and SLURM_NTASKS {tasks}")));
        }
        if task == 0 && node != 0 {
            return Err(SlurmError::Contradiction(format!("SLURM_PROCID is 0 and SLURM_NODEID {node}")));
        }
        let role = match (task, node, local) {
            (0, _, _) => Role::Root,
            (_, 0, _) => Role::Spare,
            (_, _, 0) => Role::Receiver,
            _ => Role::Spare,
        };
        Ok(Some(Task { role, nodes, node: own }))
    }
}

/// Why a list of nodes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodelistError {
    /// The list is empty.
    #[error("it has no nodes")]
    NoHosts,
    /// More than [`MAX_HOSTS`].
    #[error("it has more than {MAX_HOSTS} nodes")]
    TooMany,
    /// A bracket is not closed, or is nested.
    #[error("the brackets of {0:?} do not match")]
    Bracket(String),
    /// Not `N` or `N-M`.
    #[error("{0:?} is neither a number nor a range")]
    Range(String),
    /// An empty item, or a character that is not allowed in names.
    #[error("{0:?} is not the name of a node")]
    Name(String),
}

/// The nodes of a list as Slurm writes it: `n[001-003,7],gpu-a[1-2]x` is n001, n002, n003, n7,
/// gpu-a1x, gpu-a2x. The first number of a range gives the number of digits.
///
/// # Errors
///
/// [`NodelistError`] says what is wrong with the list.
pub(crate) fn expand(list: &str) -> Result<Vec<String>, NodelistError> {
    if list.is_empty() {
        return Err(NodelistError::NoHosts);
    }
    let mut nodes = Vec::new();
    let mut depth = 0usize;
    // Commas within brackets belong to the item.
    let items = list.split(|c| {
        depth = match c {
            '[' => depth + 1,
            ']' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ',' && depth == 0
    });
    for item in items {
        expand_item(item, &mut nodes)?;
    }
    Ok(nodes)
}

/// One item: a name with any number of brackets, the last of which counts fastest.
fn expand_item(item: &str, nodes: &mut Vec<String>) -> Result<(), NodelistError> {
    let bracket = || NodelistError::Bracket(item.to_owned());
    let mut names = vec![String::new()];
    let mut rest = item;
    while !rest.is_empty() {
        let plain = rest.find(['[', ']']).unwrap_or(rest.len());
        names.iter_mut().for_each(|name| name.push_str(&rest[..plain]));
        rest = &rest[plain..];
        if rest.is_empty() {
            break;
        }
        let (inside, behind) = rest.strip_prefix('[').and_then(|r| r.split_once(']')).ok_or_else(bracket)?;
        if inside.contains('[') {
            return Err(bracket());
        }
        let numbers = expand_numbers(inside)?;
        if names.len() * numbers.len() + nodes.len() > MAX_HOSTS {
            return Err(NodelistError::TooMany);
        }
        names = names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{number}"))).collect();
        rest = behind;
    }
    if nodes.len() + names.len() > MAX_HOSTS {
        return Err(NodelistError::TooMany);
    }
    if !names.iter().all(|name| super::is_name(name)) {
        return Err(NodelistError::Name(item.to_owned()));
    }
    nodes.append(&mut names);
    Ok(())
}

/// The numbers of a bracket.
fn expand_numbers(inside: &str) -> Result<Vec<String>, NodelistError> {
    let mut numbers = Vec::new();
    for range in inside.split(',') {
        let wrong = || NodelistError::Range(range.to_owned());
        let digits = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
            true => text.parse::<u64>().map_err(|_| wrong()),
            false => Err(wrong()),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        let (first, last) = (digits(first)?, digits(last)?);
        let count = last.checked_sub(first).ok_or_else(wrong)?;
        if count >= MAX_HOSTS as u64 || numbers.len() as u64 + count >= MAX_HOSTS as u64 {
            return Err(NodelistError::TooMany);
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_as_slurm_writes_them() {
        let nodes = |list: &str| expand(list).unwrap().join(" ");
        assert_eq!(nodes("n[001-003,7],gpu-a[1-2]x"), "n001 n002 n003 n7 gpu-a1x gpu-a2x");
        assert_eq!(nodes("n[8-11]"), "n8 n9 n10 n11");
        assert_eq!(nodes("r[1-2]n[0-1]"), "r1n0 r1n1 r2n0 r2n1");
        assert_eq!(nodes("single"), "single");
        for (list, error) in [
            ("", NodelistError::NoHosts),
            ("n[1-3", NodelistError::Bracket("n[1-3".to_owned())),
            ("n1]", NodelistError::Bracket("n1]".to_owned())),
            ("n[[1]]", NodelistError::Bracket("n[[1]]".to_owned())),
            ("n[]", NodelistError::Range(String::new())),
            ("n[1-]", NodelistError::Range("1-".to_owned())),
            ("n[3-1]", NodelistError::Range("3-1".to_owned())),
            ("n[a]", NodelistError::Range("a".to_owned())),
            ("n[99999999999999999999]", NodelistError::Range("99999999999999999999".to_owned())),
            ("a,,b", NodelistError::Name(String::new())),
            ("-a", NodelistError::Name("-a".to_owned())),
            ("n[0-65536]", NodelistError::TooMany),
            ("n[0-65534],a,b", NodelistError::TooMany),
            ("n[0-999][0-999]", NodelistError::TooMany),
            ("n[0-18446744073709551615]", NodelistError::TooMany),
        ] {
            assert_eq!(expand(list), Err(error), "{list}");
        }
        assert_eq!(expand("n[0-65535]").unwrap().len(), MAX_HOSTS);
    }

    /// A bracket: ranges, each with its first number, how many follow, and the digits.
    type Ranges = Vec<(u64, u64, usize)>;

    proptest! {
        /// The oracle writes the names one by one beside the list.
        #[test]
        fn lists_expand_to_their_names(
            items in prop::collection::vec(
                ("[a-z]{1,4}", prop::collection::vec((0u64..1200, 0u64..12, 1usize..5), 0..4) , "[a-z-]{0,3}"), 1..6),
        ) {
            let (mut list, mut expected) = (Vec::new(), Vec::new());
            for (prefix, ranges, suffix) in items {
                let ranges: Ranges = ranges;
                if ranges.is_empty() {
                    expected.push(format!("{prefix}{suffix}"));
                    list.push(format!("{prefix}{suffix}"));
                    continue;
                }
                let mut texts = Vec::new();
                for (first, more, digits) in ranges {
                    texts.push(match more {
                        0 => format!("{first:0digits$}"),
                        _ => format!("{first:0digits$}-{}", first + more),
                    });
                    for number in first..=first + more {
                        let mut number = number.to_string();
                        while number.len() < digits.max(first.to_string().len()) {
                            number.insert(0, '0');
                        }
                        expected.push(format!("{prefix}{number}{suffix}"));
                    }
                }
                list.push(format!("{prefix}[{}]{suffix}", texts.join(",")));
            }
            prop_assert_eq!(expand(&list.join(",")), Ok(expected));
        }

        #[test]
        fn no_text_panics(text in "[a-c0-9\\[\\],-]{0,40}|\\PC{0,40}") {
            if let Ok(nodes) = expand(&text) {
                prop_assert!(!nodes.is_empty() && nodes.len() <= MAX_HOSTS);
            }
        }
    }

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    /// Task `task` on node `node`, the `local`th there, of a step of three nodes in a job of four.
    fn step(task: &str, node: &str, local: &str) -> BTreeMap<String, String> {
        env(&[
            ("SLURM_JOB_ID", "77"),
            ("SLURM_JOB_NODELIST", "n[1-4]"),
            ("SLURM_LOCALID", local),
            ("SLURM_NODEID", node),
            ("SLURM_NTASKS", "6"),
            ("SLURM_PROCID", task),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NODELIST", "n[2-4]"),
        ])
    }

    #[test]
    fn roles() {
        let role = |task, node, local| Task::from_env(&step(task, node, local)).unwrap().unwrap();
        assert_eq!((role("0", "0", "0").role, role("1", "0", "1").role), (Role::Root, Role::Spare));
        assert_eq!((role("2", "1", "0").role, role("3", "1", "1").role), (Role::Receiver, Role::Spare));
        let last = role("4", "2", "0");
        assert_eq!((last.nodes.join(" "), last.node.as_str()), ("n2 n3 n4".to_owned(), "n4"));
        // Cyclic distribution: task 1 is on the second node.
        assert_eq!(role("1", "1", "0").role, Role::Receiver);
        let mut whole_job = step("0", "0", "0");
        whole_job.remove("SLURM_STEP_NODELIST");
        assert_eq!(Task::from_env(&whole_job).unwrap().unwrap().nodes.len(), 4);
    }

    #[test]
    fn invalid_environments_are_refused() {
        assert_eq!(Task::from_env(&env(&[("PATH", "/bin")])), Ok(None));
        let script = env(&[("SLURM_JOB_ID", "77"), ("SLURM_JOB_NODELIST", "n[1-4]"), ("SLURM_PROCID", "0")]);
        assert_eq!(Task::from_env(&script), Err(SlurmError::NoTask));
        let says = |env: &BTreeMap<String, String>| Task::from_env(env).unwrap_err().to_string();
        assert!(says(&step("x", "0", "0")).starts_with("SLURM_PROCID is \"x\""));
        assert!(says(&step("1", "3", "0")).starts_with("SLURM_NODEID is 3 and SLURM_STEP_NODELIST has 3 nodes"));
        assert!(says(&step("6", "1", "0")).starts_with("SLURM_PROCID is 6 and SLURM_NTASKS 6"));
        assert!(says(&step("0", "1", "0")).starts_with("SLURM_PROCID is 0 and SLURM_NODEID 1"));
        let mut bad = step("1", "1", "0");
        bad.insert("SLURM_STEP_NODELIST".to_owned(), "n[2-".to_owned());
        assert!(says(&bad).starts_with("SLURM_STEP_NODELIST cannot be read: the brackets"));
        bad.remove("SLURM_LOCALID");
        assert!(says(&bad).starts_with("SLURM_LOCALID is \"\""));
    }
}

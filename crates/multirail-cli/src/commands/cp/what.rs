//! What `multirail cp` copies, and how.

use crate::printer::Printer;
use crate::usage::Usage;
use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use multirail::files::{Change, Extras, Options, Rule};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest file of rules, in bytes.
const MAX_RULES_BYTES: u64 = 1 << 20;

/// What is copied, and how.
#[derive(clap::Args)]
pub(super) struct WhatArgs {
    /// Copy directories and their content
    #[arg(short, long)]
    recursive: bool,
    /// Compare the contents of files of the same length, not their modification times
    #[arg(short, long)]
    checksum: bool,
    /// Copy nothing, and print what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Delete what DEST has in the copied directories and the sources have not, after everything was
    /// copied
    #[arg(long, requires = "recursive")]
    delete: bool,
    #[command(flatten)]
    rules: RuleArgs,
    /// Make hard links within a source again
    #[arg(short = 'H', long)]
    hard_links: bool,
    /// Keep the numbers of user and group
    #[arg(long)]
    owner: bool,
    /// Keep extended attributes (`user.*`)
    #[arg(short = 'X', long)]
    xattrs: bool,
    /// Keep access control lists
    #[arg(short = 'A', long)]
    acls: bool,
    /// Write each file to disk before it gets its name, and its name before it counts as copied
    #[arg(long)]
    fsync: bool,
}

/// Rules in the order in which they were given.
#[derive(Debug, Default)]
struct RuleArgs {
    rules: Vec<Given>,
}

#[derive(Debug)]
enum Given {
    Rule(Rule),
    File(PathBuf),
}

/// What would be done with an entry.
#[derive(Serialize)]
struct ChangeRow<'a> {
    would: Change,
    path: std::borrow::Cow<'a, str>,
}

impl WhatArgs {
    pub(super) fn options(&self, printer: &Printer) -> anyhow::Result<Options> {
        let printer = *printer;
        let on_change = self.dry_run.then(|| {
            Arc::new(move |would: Change, path: &Path| {
                let row = ChangeRow { would, path: path.to_string_lossy() };
                printer.row(&row, |row| {
                    crate::escape::one_line(&format!("{} {}", name(row.would), row.path)).into_owned()
                });
            }) as multirail::files::OnChange
        });
        Ok(Options::new()
            .recursive(self.recursive)
            .by_content(self.checksum)
            .dry_run(on_change)
            .delete(self.delete)
            .rules(self.rules.read()?)
            .hard_links(self.hard_links)
            .extras(Extras { owner: self.owner, xattrs: self.xattrs, acls: self.acls })
            .sync(self.fsync))
    }
}

/// A change in a word for people.
fn name(change: Change) -> &'static str {
    match change {
        Change::Send => "send",
        Change::Compare => "compare",
        Change::Properties => "properties",
        Change::Directory => "directory",
        Change::Link => "link",
        Change::Delete => "delete",
        _ => "change",
    }
}

impl RuleArgs {
    /// The rules, with those of files.
    fn read(&self) -> anyhow::Result<Vec<Rule>> {
        let mut rules = Vec::new();
        for given in &self.rules {
            match given {
                Given::Rule(rule) => rules.push(rule.clone()),
                Given::File(path) => rules.extend(read_rules(path)?),
            }
        }
        Ok(rules)
    }
}

/// The rules in a file: a pattern on each line, with `- ` or `+ ` before it where wanted.
fn read_rules(path: &Path) -> anyhow::Result<Vec<Rule>> {
    let shown = || format!("--exclude-from {}", path.display());
    let length = std::fs::metadata(path).with_context(shown)?.len();
    if length > MAX_RULES_BYTES {
        return Err(Usage::of(format!("{}: it has more than {MAX_RULES_BYTES} bytes", shown())));
    }
    let text = std::fs::read_to_string(path).with_context(shown)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with(['#', ';']));
    let rule = |line: &str| match line.split_at_checked(2) {
        Some(("+ ", pattern)) => Rule { include: true, pattern: pattern.to_owned() },
        Some(("- ", pattern)) => Rule { include: false, pattern: pattern.to_owned() },
        _ => Rule { include: false, pattern: line.to_owned() },
    };
    Ok(lines.map(rule).collect())
}

impl clap::Args for RuleArgs {
    fn augment_args(command: Command) -> Command {
        let pattern = |name: &'static str, help: &'static str| {
            Arg::new(name).long(name).value_name("PATTERN").action(ArgAction::Append).help(help)
        };
        let exclude = pattern("exclude", "Leave out what matches, as with rsync; the first rule that matches decides");
        let include = pattern("include", "Copy what matches, though a later rule excludes it");
        let file = Arg::new("exclude-from")
            .long("exclude-from")
            .value_name("FILE")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .help("Leave out what matches a line of a file; a line that begins with `+ ` includes");
        command.args([exclude, include, file])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RuleArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given: Vec<(usize, Given)> = Vec::new();
        for (name, include) in [("exclude", false), ("include", true)] {
            let patterns = matches.get_many::<String>(name).into_iter().flatten();
            let rules = patterns.map(|pattern| Given::Rule(Rule { include, pattern: pattern.clone() }));
            given.extend(matches.indices_of(name).into_iter().flatten().zip(rules));
        }
        let files = matches.get_many::<PathBuf>("exclude-from").into_iter().flatten();
        let files = files.map(|path| Given::File(path.clone()));
        given.extend(matches.indices_of("exclude-from").into_iter().flatten().zip(files));
        given.sort_by_key(|(index, _)| *index);
        Ok(Self { rules: given.into_iter().map(|(_, given)| given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        what: WhatArgs,
    }

    #[test]
    fn rules_keep_their_order() {
        let file = std::env::temp_dir().join(format!("multirail-rules-{}", std::process::id()));
        std::fs::write(&file, "# comment\n\n*.tmp\n+ keep me\n- x\n").unwrap();
        let from = file.to_str().unwrap();
        let args = ["cp", "--exclude", "a", "--include=b", "--exclude-from", from, "--exclude", "c"];
        let rules = Line::try_parse_from(args).unwrap().what.rules.read().unwrap();
        std::fs::remove_file(&file).unwrap();
        let rules: Vec<_> = rules.iter().map(|rule| (rule.include, rule.pattern.as_str())).collect();
        let expected = [(false, "a"), (true, "b"), (false, "*.tmp"), (true, "keep me"), (false, "x"), (false, "c")];
        assert_eq!(rules, expected);
    }
}

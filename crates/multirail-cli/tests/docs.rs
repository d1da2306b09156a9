//! Runs every ```sh block of README.md and docs/, document by document, in an empty directory.
//!
//! A block that is not run gives the reason in its info string: ```sh no-test-because-...

use multirail_lab::Lab;
use multirail_testing::{Requirement, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOT_RUN: &str = "no-test-because-";

/// The script around each document's commands. Like a reader, it waits for servers in the
/// background.
const PRELUDE: &str = r#"
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; multirail lab down --name "$LAB" >/dev/null 2>&1 || true' EXIT
ready() {
    for _ in {1..200}; do
        multirail lab exec --name "$LAB" "$1" -- bash -c '</dev/tcp/127.0.0.1/7717' 2>/dev/null && return
        sleep 0.05
    done
    echo "the server did not come up" >&2
    return 1
}
"#;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

fn documents() -> Vec<PathBuf> {
    let mut found = vec![workspace().join("README.md")];
    let mut folders = vec![workspace().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("docs can be read") {
            let path = entry.expect("docs can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The fenced blocks of a document: info string and content.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let content: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
            blocks.push((info, content.join("\n")));
        }
    }
    blocks
}

/// The commands of a document that the test runs.
fn script(document: &Path) -> Option<String> {
    let text = fs::read_to_string(document).expect("documents can be read");
    let mut script = String::new();
    for (info, content) in blocks(&text) {
        match info.split_once(' ') {
            Some(("sh", why)) => {
                let reason = why.strip_prefix(NOT_RUN).filter(|reason| !reason.is_empty());
                assert!(reason.is_some(), "{}: `{info}` does not say {NOT_RUN}WHY", document.display());
            }
            None if info == "sh" => {
                for line in content.lines() {
                    script.push_str(line);
                    script.push('\n');
                    if let (true, Some(host)) = (line.contains(" serve ") && line.ends_with('&'), served_on(line)) {
                        script.push_str(&format!("ready {host}\n"));
                    }
                }
            }
            _ => {}
        }
    }
    (!script.is_empty()).then_some(script)
}

/// The host of a lab that a command runs on.
fn served_on(line: &str) -> Option<&str> {
    line.strip_prefix("multirail lab exec --name guide ")?.split_whitespace().next()
}

#[test]
fn commands_of_the_documents_run() {
    let scripts: Vec<_> = documents().into_iter().filter_map(|d| Some((script(&d)?, d))).collect();
    assert!(scripts.len() >= 2, "the guide has commands");
    if let Err(why) = Lab::supported() {
        return skip(Requirement::Namespaces, why);
    }
    let multirail = Path::new(env!("CARGO_BIN_EXE_multirail"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}:/usr/sbin:/sbin", multirail.parent().expect("it is in a folder").display());
    for (number, (script, document)) in scripts.iter().enumerate() {
        let lab = format!("docs-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&lab);
        fs::create_dir_all(&folder).expect("a folder to work in");
        // A separate name, so that a lab of the reader's is unaffected.
        let script = script.replace("--name guide", &format!("--name {lab}"));
        let output = Command::new("timeout")
            .args(["60", "bash", "-c", &format!("LAB={lab}\n{PRELUDE}\nset -x\n{script}")])
            .current_dir(&folder)
            .env("PATH", &path)
            .env("MULTIRAIL_KEYS", folder.join("keys"))
            .output()
            .expect("bash runs");
        fs::remove_dir_all(&folder).expect("the folder goes");
        assert!(
            output.status.success(),
            "{}: {}\n{}{}",
            document.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn rust_of_the_documents_is_in_the_examples() {
    let examples =
        [include_str!("../../multirail/examples/messages.rs"), include_str!("../../multirail/examples/pipeline.rs")];
    for document in documents() {
        for (info, content) in blocks(&fs::read_to_string(&document).expect("documents can be read")) {
            assert!(
                info != "rust" || examples.iter().any(|example| example.contains(&content)),
                "{}: not in an example:\n{content}",
                document.display()
            );
        }
    }
}

#[test]
fn links_between_documents_have_targets() {
    let root = workspace();
    let top = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name));
    for document in documents().into_iter().chain(top) {
        let text = fs::read_to_string(&document).expect("documents can be read");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") {
                let target = document.parent().expect("a document is in a folder").join(file);
                assert!(target.exists(), "{}: {link} has no target", document.display());
            }
        }
    }
}

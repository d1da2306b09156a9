//! What the shell of the other host runs for a copy.
//!
//! The login's shell may be any: it sees `exec sh -c` and words in single quotes, which have no
//! line feed and no exclamation mark. Nothing that a user gives is part of a script; it is an
//! argument of the script. What the scripts print is in [`dialogue`](super::dialogue).

use super::quoted;

/// Says the version of the program `$1`, and runs it.
const INSTALLED: &str = r#"
    command -v "$1" >/dev/null 2>&1 || { echo "multirail-copy: absent $1"; exit 127; };
    v=$("$1" --version </dev/null) || { echo "multirail-copy: broken"; exit 126; };
    echo "multirail-copy: version $v";
    exec "$1" copy-server
"#;

/// Reads a program of `$1` bytes from stdin, says its version, and runs it.
///
/// The program is in a fresh directory of the user alone. A file system may not let programs run,
/// so this is tried first. The directory is removed before the program serves, which runs by its
/// open file. It is also removed when the script ends before that in any way but by SIGKILL.
const LENT: &str = r#"
    echo "multirail-copy: system $(uname -sm)";
    umask 077;
    d=;
    trap "rm -rf \"\$d\"" EXIT;
    trap "exit 1" HUP INT PIPE TERM;
    for base in "${TMPDIR:-/tmp}" "$HOME"; do
        d=$(mktemp -d "$base/.multirail-XXXXXXXXXX" 2>/dev/null) || continue;
        echo : >"$d/multirail";
        chmod 700 "$d/multirail";
        "$d/multirail" 2>/dev/null && break;
        rm -rf "$d";
        d=;
    done;
    test -n "$d" || { echo "multirail-copy: no-directory"; exit 126; };
    echo "multirail-copy: directory";
    head -c "$1" >"$d/multirail";
    test "$(wc -c <"$d/multirail")" -eq "$1" || exit 1;
    v=$("$d/multirail" --version </dev/null) || { echo "multirail-copy: broken"; exit 126; };
    echo "multirail-copy: version $v";
    exec 3<"$d/multirail";
    rm -rf "$d";
    exec /proc/self/fd/3 copy-server
"#;

/// The command for the shell of the other host, which runs the program `program` there.
pub(super) fn installed(program: &str) -> String {
    command(INSTALLED, program)
}

/// The command for the shell of the other host, which runs a program of `bytes` bytes from stdin.
pub(super) fn lent(bytes: u64) -> String {
    command(LENT, &bytes.to_string())
}

/// A script on one line, with its argument.
fn command(script: &str, argument: &str) -> String {
    let script: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("exec sh -c {} sh {}", quoted(&script.join(" ")), quoted(argument))
}

#[cfg(test)]
mod tests {
    use super::super::dialogue::{Dialogue, MARK, Step};
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Output, Stdio};

    /// Runs a command as a login's shell does, with `home` as home and directory of temporary files.
    fn run(command: &str, home: &std::path::Path, stdin: &[u8]) -> (Vec<String>, Output) {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .env("HOME", home)
            .env("TMPDIR", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A script that ends early does not read all.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        (said, output)
    }

    struct Home(std::path::PathBuf);

    impl Home {
        fn new(name: &str) -> Self {
            let home = std::env::temp_dir().join(format!("multirail script's {name} {}", std::process::id()));
            std::fs::create_dir_all(&home).unwrap();
            Self(home)
        }

        fn names(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Home {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A program that says its version, and where it runs from.
    const PROGRAM: &[u8] =
        b"#!/bin/sh\nif test \"$1\" = --version; then echo \"multirail 7.8.9\"; else echo \"$*\"; fi\n";

    #[test]
    fn scripts_are_one_line_for_every_shell() {
        for command in [installed("multirail"), lent(1)] {
            assert!(!command.contains(['\n', '!']), "{command}");
            assert_eq!(command.matches('\'').count(), 4, "the script has no single quotes: {command}");
        }
    }

    #[test]
    fn an_absent_program_is_named_and_nothing_is_run() {
        let home = Home::new("absent");
        for program in ["/nowhere/it's; touch \"$HOME/x\"", "$(touch x)", "`touch x`"] {
            let (said, output) = run(&installed(program), &home.0, b"");
            assert_eq!((said, output.status.code()), (vec![format!("{MARK}absent {program}")], Some(127)));
        }
        assert_eq!(home.names(), 0);
    }

    #[test]
    fn a_program_that_is_there_runs() {
        let home = Home::new("there");
        let program = home.0.join("multi rail");
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let (said, _) = run(&installed(program.to_str().unwrap()), &home.0, b"");
        assert_eq!(said, [format!("{MARK}version multirail 7.8.9"), "copy-server".to_owned()]);
        std::fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        let (said, output) = run(&installed(program.to_str().unwrap()), &home.0, b"");
        assert_eq!((said, output.status.code()), (vec![format!("{MARK}broken")], Some(126)));
    }

    /// A script of a shell cannot be run by its open file once it is removed, so this is `cat`,
    /// which takes `--version`.
    #[test]
    fn a_lent_program_runs_and_is_removed() {
        let home = Home::new("lent");
        let cat = std::fs::read("/bin/cat").unwrap();
        let (said, output) = run(&lent(cat.len() as u64), &home.0, &cat);
        let mut dialogue = Dialogue::lending(said[0].strip_prefix(&format!("{MARK}system ")).unwrap().to_owned());
        let steps: Vec<_> = said.iter().take(3).map(|line| dialogue.take(line).unwrap()).collect();
        assert_eq!(steps, [Step::Read, Step::SendProgram, Step::SendInvitation]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("copy-server: No such file"), "cat looks for its argument: {stderr}");
        assert_eq!(home.names(), 0);
    }

    #[test]
    fn a_program_that_came_in_part_or_does_not_run_is_removed() {
        let home = Home::new("part");
        let (said, output) = run(&lent(100), &home.0, b"part");
        assert_eq!((said.len(), output.status.code()), (2, Some(1)), "{said:?}");
        let (said, output) = run(&lent(4), &home.0, b"\x7fELF");
        assert_eq!((said.last(), output.status.code()), (Some(&format!("{MARK}broken")), Some(126)));
        assert_eq!(home.names(), 0);
        let nowhere = home.0.join("nowhere");
        let (said, output) = run(&lent(4), &nowhere, b"");
        assert_eq!((said.last(), output.status.code()), (Some(&format!("{MARK}no-directory")), Some(126)));
    }
}

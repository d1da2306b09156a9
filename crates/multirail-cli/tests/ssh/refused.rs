//! Hosts that cannot serve a copy.

use super::sshd::{Hosts, MULTIRAIL, stderr};
use std::fs;
use std::net::TcpListener;
use std::process::Command;

/// The stderr of a copy that fails with exit code 1.
fn fails(hosts: &Hosts, options: &[&str]) -> String {
    fs::write(hosts.near("file"), "x").unwrap();
    let output = hosts.cp().args(options).args(["file", "far:"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(output.stdout.is_empty() && !hosts.far("file").exists());
    hosts.wait_until_far_is_idle();
    stderr(&output)
}

#[test]
fn a_host_without_the_program_says_how_to_get_it() {
    let Some(hosts) = Hosts::start("absent") else { return };
    hosts.far_program("multirail", None);
    let text = fails(&hosts, &[]);
    assert!(
        text.starts_with("error: far cannot serve the copy: it has no program multirail\nhint: install it"),
        "{text}"
    );
    assert!(text.contains("--ssh-program") && text.contains("--push-binary"), "{text}");
    let text = fails(&hosts, &["--ssh-program", "/opt/it's"]);
    assert!(text.contains("it has no program /opt/it's\n"), "{text}");
}

#[test]
fn a_version_that_does_not_fit_is_named_with_ours() {
    let Some(hosts) = Hosts::start("version") else { return };
    let older = "#!/bin/sh\ntest \"$1\" = --version && { echo 'multirail 0.0.9'; exit; }\n\
                 echo \"error: unrecognized subcommand '$1'\" >&2; exit 2\n";
    let newer = "#!/bin/sh\ntest \"$1\" = --version && { echo 'multirail 9.0.0'; exit; }\n\
                 read -r line; echo 'multirail-copy: ready {\"protocol\":900}'; read -r line\n";
    for (program, version) in [(older, "multirail 0.0.9"), (newer, "multirail 9.0.0 (protocol 900)")] {
        hosts.far_program("multirail", Some(program));
        let text = fails(&hosts, &[]);
        let ours = concat!("this side multirail ", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&format!("it has {version}")) && text.contains(ours), "{text}");
        assert!(text.contains("hint: install the same version on both hosts"), "{text}");
    }
}

#[test]
fn a_program_that_does_not_run_there_is_told() {
    let Some(hosts) = Hosts::start("broken") else { return };
    hosts.far_program("multirail", Some("#!/bin/sh\necho 'libm.so.6: version not found' >&2; exit 1\n"));
    let text = fails(&hosts, &[]);
    assert!(text.starts_with("libm.so.6: version not found\nerror: far cannot serve the copy: the program"), "{text}");
    hosts.far_program("multirail", Some("#!/bin/sh\ntest \"$1\" = --version && exit; exit 7\n"));
    let text = fails(&hosts, &[]);
    assert!(text.starts_with("error: ssh to far failed: it ended with exit code 7"), "{text}");
}

/// The server listens on a port that cannot be reached, as behind a firewall.
#[test]
fn addresses_that_cannot_be_reached_are_named() {
    let Some(hosts) = Hosts::start("firewall") else { return };
    // The listener reserves a port and is closed before the attempt.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let ready = serde_json::json!({
        "protocol": multirail::handshake::PROTOCOL_VERSION, "port": closed.port(), "addresses": ["127.0.0.1", "127.0.0.2"],
        "key": multirail::Identity::of_process().public_key().to_string(),
    });
    let program = format!(
        "#!/bin/sh\ntest \"$1\" = --version && {{ echo multirail; exit; }}\n\
         read -r line; echo 'multirail-copy: ready {ready}'; read -r line\n"
    );
    hosts.far_program("multirail", Some(&program));
    let text = fails(&hosts, &[]);
    let tried = format!("error: ssh reaches far, but no TCP connection does; tried {closed}: Connection refused");
    assert!(text.starts_with(&tried), "{text}");
    assert!(text.contains("\nhint: ") && text.contains("--ports") && !text.contains("127.0.0.2"), "{text}");
}

/// Somebody between the hosts answers in place of the server, with a key of theirs.
#[test]
fn a_server_with_another_key_is_refused() {
    let Some(hosts) = Hosts::start("other-key") else { return };
    let key = multirail::Identity::generate().public_key();
    let program = format!(
        "#!/bin/sh\ntest \"$1\" = --version && {{ echo multirail; exit; }}\n\
         {MULTIRAIL} copy-server | sed -u 's/ed25519:[^\"]*/{key}/'\n"
    );
    hosts.far_program("multirail", Some(&program));
    let text = fails(&hosts, &[]);
    assert!(text.contains("a server answers that has not the key that ssh passed on"), "{text}");
}

#[test]
fn errors_of_ssh_are_those_of_ssh() {
    let Some(hosts) = Hosts::start("ssh-errors") else { return };
    hosts.forget_host_key();
    let text = fails(&hosts, &[]);
    assert!(text.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"), "{text}");
    assert!(text.ends_with("error: ssh to far failed: Host key verification failed.\n"), "{text}");

    let multirail = |args: &[&str]| Command::new(MULTIRAIL).arg("cp").args(args).output().unwrap();
    let text = stderr(&multirail(&["--ssh", "/nowhere/ssh", "file", "far:"]));
    assert!(text.starts_with("error: cannot run /nowhere/ssh: No such file or directory"), "{text}");
    let text = stderr(&multirail(&["--ssh", "ssh 'x", "file", "far:"]));
    assert!(text.contains("a quote is not closed"), "{text}");
    let no_host = multirail(&["file", "--", "-o@far:"]);
    assert_eq!(no_host.status.code(), Some(2), "an option is no user: {}", stderr(&no_host));
}

#[test]
fn options_of_the_other_kind_of_host_are_mistakes() {
    let Some(hosts) = Hosts::start("options") else { return };
    for (args, why) in [
        (&["file", "mr://far/"][..], "--ssh is for hosts of ssh"),
        (&["--token-file", "token", "file", "far:"], "--token-file is for servers that run"),
        (&["--ssh-program", "x", "--push-binary", "file", "far:"], "cannot be used with"),
        (&["--ports", "0", "file", "far:"], "7000-7010"),
        (&["file", "far::module"], "two colons"),
    ] {
        let output = hosts.cp().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?} {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?} {}", stderr(&output));
    }
}

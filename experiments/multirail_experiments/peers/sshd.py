"""An sshd on host b with keys and configuration of its own, for programs that copy over ssh.

The host has the address of the best rail. No file of the user who runs this is read or changed.
"""

import contextlib
import os
import pathlib
import subprocess

from multirail_experiments.peers.common import best_rail, command, missing

PORT = 7823
# What ssh calls the host.
HOST = "b"


def missing_ssh(*commands):
    """Why a program over ssh that needs these commands cannot run; None if it can."""
    if os.geteuid() != 0:
        return "needs root"
    return missing("sshd", "ssh", "ssh-keygen", *commands)


class Sshd:
    """What a client needs: `ssh` is the command that reaches host b, with its options."""

    def __init__(self, folder, address):
        self.folder, self.address = folder, address
        self.configuration, self.key = folder / "ssh.conf", folder / "user"
        self.known_hosts = folder / "known"
        self.ssh = f"ssh -F {self.configuration}"


@contextlib.contextmanager
def sshd(lab, port):
    """Runs it while the block runs."""
    folder = lab.work / f"ssh-{port}"
    folder.mkdir(mode=0o700)
    # The folder of sshd's unprivileged processes, which Debian makes when its service starts.
    pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for key in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True
        )
    address = lab.address("b", best_rail(lab))
    used = Sshd(folder, address)
    host_key = (folder / "host.pub").read_text()
    used.known_hosts.write_text(f"[{address}]:{port} {host_key}")
    (folder / "sshd.conf").write_text(
        f"ListenAddress {address}:{port}\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    )
    used.configuration.write_text(
        f"Host {HOST}\nHostName {address}\nPort {port}\nUser root\nIdentityFile {used.key}\n"
        f"IdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {used.known_hosts}\n"
        "GlobalKnownHostsFile none\nStrictHostKeyChecking yes\nBatchMode yes\n"
    )
    server = [command("sshd"), "-D", "-e", "-f", folder / "sshd.conf"]
    ready, quiet = lab.listens("b", port), subprocess.DEVNULL
    with lab.start("b", *server, ready=ready, stderr=quiet):
        yield used

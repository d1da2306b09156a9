"""LACP with a hash of addresses and ports (balance-tcp), by Open vSwitch in userspace.

LACP requires that all ports of a host lead to one switch, so the lab's switches are joined. Each
host and the switch have an `ovs-vswitchd` that handles every packet. That costs far more CPU time
than a hardware switch and a kernel driver.
"""

import contextlib
import os
import subprocess
import time

from multirail_experiments.peers.common import missing

FLAGS, OPTIONS = [], []
# The kernel also sees packets at the ports that Open vSwitch reads, and must not answer them.
SYSCTL = {"net.ipv4.conf.all.arp_ignore": 1, "net.ipv4.conf.all.rp_filter": 1}
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
BRIDGE, SWITCH = "br0", "switch.0"
# LACP's fast timers send once a second.
NEGOTIATED_S = 15


def available(_multirail, _line):
    return missing("ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-appctl", "ovsdb-tool")


@contextlib.contextmanager
def prepared(net, _line):
    with contextlib.ExitStack() as stack:
        join_switches(net)
        switch = stack.enter_context(open_vswitch(net, SWITCH))
        switch.bridge(
            {
                f"bond{host.number}": [switch_port(host, port) for port in range(len(net.ports))]
                for host in net.hosts
            }
        )
        bonds = []
        for host in net.hosts:
            own = stack.enter_context(open_vswitch(net, host.name))
            own.bridge({"bond": net.ports})
            net.run(host.name, "ip", "address", "flush", "dev", net.ports[0])
            net.run(host.name, "ip", "address", "add", f"{net.address(host)}/24", "dev", BRIDGE)
            net.run(host.name, "ip", "link", "set", "dev", BRIDGE, "up")
            bonds.append(own)
        until = time.monotonic() + NEGOTIATED_S
        while not all(own.is_negotiated(len(net.ports)) for own in bonds):
            if time.monotonic() > until:
                raise RuntimeError(f"LACP was not negotiated after {NEGOTIATED_S} s")
            time.sleep(0.2)
        yield


def address(net, host):
    return net.address(host)


def switch_port(host, number):
    return f"h{host.number}p{number}"


def namespace(net, name):
    return f"mrlab-{net.name}-{name}"


def join_switches(net):
    """Moves all ports of all switches into the first one, and restores their rates."""
    for number in range(len(net.ports)):
        for host in net.hosts:
            old, new = f"port{host.number - 1}", switch_port(host, number)
            ip(net, f"switch.{number}", "link", "set", "dev", old, "down")
            ip(net, f"switch.{number}", "link", "set", "dev", old, "nomaster", "name", new)
            if number > 0:
                ip(
                    net,
                    f"switch.{number}",
                    "link",
                    "set",
                    "dev",
                    new,
                    "netns",
                    namespace(net, SWITCH),
                )
                ip(net, SWITCH, "link", "set", "dev", new, "up", "gso_max_segs", "1")
                shape(net, new, net.port_rates_mbit_s[number])
            else:
                ip(net, SWITCH, "link", "set", "dev", new, "up")


def shape(net, port, rate_mbit_s):
    """Shapes a port as the lab does: 20 ms of queue, 50 µs of burst."""
    if rate_mbit_s is None:
        return
    bytes_s = rate_mbit_s * 125_000
    tc(net, "qdisc", "add", "dev", port, "root", "handle", "1:", "htb", "default", "1")
    tc(
        net,
        "class",
        "add",
        "dev",
        port,
        "parent",
        "1:",
        "classid",
        "1:1",
        "htb",
        "rate",
        f"{rate_mbit_s}mbit",
        "ceil",
        f"{rate_mbit_s}mbit",
        "burst",
        round(bytes_s * 50e-6),
        "cburst",
        round(bytes_s * 50e-6),
        "quantum",
        1514,
        "mtu",
        1514,
    )
    tc(
        net,
        "qdisc",
        "add",
        "dev",
        port,
        "parent",
        "1:1",
        "bfifo",
        "limit",
        max(round(bytes_s * 0.02), 16 * 1514),
    )


def ip(net, name, *words):
    checked(["ip", "-netns", namespace(net, name), *words])


def tc(net, *words):
    checked(["tc", "-netns", namespace(net, SWITCH), *map(str, words)])


def checked(words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words[:6])}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def open_vswitch(net, name):
    """Runs a database and a switch in a namespace during the block."""
    folder = net.work / f"ovs-{name}"
    folder.mkdir()
    one = OpenVSwitch(net, name, folder)
    processes = []
    try:
        checked(["ovsdb-tool", "create", str(folder / "conf.db"), SCHEMA])
        processes.append(
            one.start("ovsdb-server", str(folder / "conf.db"), f"--remote=punix:{folder}/db.sock")
        )
        one.wait_for("db.sock")
        one.configure("--no-wait", "init")
        processes.append(one.start("ovs-vswitchd", f"unix:{folder}/db.sock"))
        one.wait_for("ovs-vswitchd.ctl")
        yield one
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class OpenVSwitch:
    def __init__(self, net, name, folder):
        self.net, self.name, self.folder = net, name, folder
        self.env = {
            **os.environ,
            **{f"OVS_{key}": str(folder) for key in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")},
        }

    def start(self, program, *words):
        command = [
            "ip",
            "netns",
            "exec",
            namespace(self.net, self.name),
            program,
            *words,
            f"--unixctl={self.folder}/{program}.ctl",
            "-vconsole:off",
            "-vsyslog:off",
            "-vfile:off",
        ]
        return subprocess.Popen(
            command,
            env=self.env,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait_for(self, file):
        until = time.monotonic() + NEGOTIATED_S
        while not (self.folder / file).exists():
            if time.monotonic() > until:
                raise RuntimeError(f"Open vSwitch on {self.name} did not start")
            time.sleep(0.02)

    def configure(self, *words):
        checked(
            ["ovs-vsctl", f"--db=unix:{self.folder}/db.sock", "--timeout=10", *words], env=self.env
        )

    def bridge(self, bonds):
        words = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"]
        for bond, ports in bonds.items():
            words += [
                "--",
                "add-bond",
                BRIDGE,
                bond,
                *ports,
                "bond_mode=balance-tcp",
                "lacp=active",
                "other_config:lacp-time=fast",
            ]
            # Without this, Open vSwitch removes the shaping of ports.
            words += [
                "--",
                f"--id=@{bond}",
                "create",
                "QoS",
                "type=linux-noop",
                "--",
                "set",
                "Port",
                bond,
                f"qos=@{bond}",
            ]
        self.configure(*words)

    def is_negotiated(self, ports):
        said = checked(
            ["ovs-appctl", "-t", f"{self.folder}/ovs-vswitchd.ctl", "bond/show", "bond"],
            env=self.env,
        )
        return said.count(": enabled") == ports and "lacp_status: negotiated" in said

"""Plain TCP from the root to every host at once: the least that a program can do.

Each host runs this module:

    flat take FILE BYTES [hash] prints `ready`, accepts one connection, prints `done` and the time;
                                with `hash`, it also hashes what it receives, by BLAKE3
    flat send FILE ADDRESS…     prints `ready`, begins after a line `go`

Key of a line: `hashes`, if hosts hash what they receive.
"""

import contextlib
import os
import socket
import sys
import threading
import time

PORT = 7830
BLOCK = 1 << 20


def available(_net):
    return None


def hasher():
    """A BLAKE3 state, which only lines with `hashes` need."""
    from blake3 import blake3

    return blake3()


def take(path, size, *how):
    state = hasher() if "hash" in how else None
    buffer = memoryview(bytearray(BLOCK))
    with socket.create_server(("0.0.0.0", PORT)) as listener, open(path, "wb") as file:
        print("ready", flush=True)
        connection, _ = listener.accept()
        left = int(size)
        while left > 0:
            count = connection.recv_into(buffer)
            if count == 0:
                raise SystemExit("the root has ended")
            file.write(buffer[:count])
            if state is not None:
                state.update(buffer[:count])
            left -= count
    print(f"done {time.monotonic()}", flush=True)
    sys.stdin.readline()


def give(path, address):
    with open(path, "rb") as file, socket.create_connection((address, PORT)) as connection:
        connection.sendfile(file)


def send(path, *addresses):
    print("ready", flush=True)
    sys.stdin.readline()
    threads = [
        threading.Thread(target=give, args=(path, address), daemon=True) for address in addresses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"done {time.monotonic()}", flush=True)
    sys.stdin.readline()


@contextlib.contextmanager
def session(net, line):
    yield Flat(net, line.get("hashes", False))


class Flat:
    def __init__(self, net, hashes):
        self.net, self.how = net, ["hash"] if hashes else []

    def broadcast(self, file, begin, limit_s, _point):
        net, setup = self.net, time.monotonic()
        others = [host for host in net.hosts if host is not net.root]
        received = {host.name: net.folder(host) / file.name for host in others}

        def command_of(host):
            words = (
                ["take", received[host.name], os.path.getsize(file), *self.how]
                if host is not net.root
                else ["send", file, *[other.address for other in others]]
            )
            return [sys.executable, "-B", "-m", __spec__.name, *words]

        with net.peers(command_of, ready="ready") as peers:
            setup_s = time.monotonic() - setup
            peers.reset_cpu()
            began = begin()
            peers.tell("go", [net.root.name])
            done = peers.wait_for("done", len(net.hosts), limit_s)
            return {
                "seconds": max(map(float, done.values())) - began,
                "setup_s": setup_s,
                "peers_cpu_s": peers.cpu_s(),
                "received": list(received.values()),
            }


if __name__ == "__main__":
    {"take": take, "send": send}[sys.argv[1]](*sys.argv[2:])

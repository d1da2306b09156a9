"""Plain TCP from the root to every host at once: the least that a program can do.

Each host runs this module:

    flat take FILE BYTES        prints `ready`, accepts one connection, prints `done` and the time
    flat send FILE ADDRESS…     prints `ready`, begins after a line `go`
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


def take(path, size):
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
def session(net, _line):
    yield Flat(net)


class Flat:
    def __init__(self, net):
        self.net = net

    def broadcast(self, file, begin, limit_s, _point):
        net, setup = self.net, time.monotonic()
        others = [host for host in net.hosts if host is not net.root]
        received = {host.name: net.folder(host) / file.name for host in others}

        def command_of(host):
            words = (
                ["take", received[host.name], os.path.getsize(file)]
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

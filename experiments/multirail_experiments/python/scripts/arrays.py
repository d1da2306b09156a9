"""What crates/multirail/examples/arrays.rs does, with arrays of NumPy: see there."""

import contextlib
import struct
import sys
import time

import multirail as mr
import numpy as np

TOKEN = mr.Token("a secret that both hosts know")
LIMIT_BYTES = 64 << 20
STREAM, PING_PONG = 0, 1


def serve(address):
    room = np.empty(LIMIT_BYTES, "u1")
    with mr.listen(address, token=TOKEN) as listener:
        print("ready", flush=True)
        while True:
            with listener.accept() as session:
                answer(session, room)


def answer(session, room):
    pattern, size, count = struct.unpack("<BQQ", session.recv())
    array = room[:size]
    for _ in range(count):
        session.recv_into(array)
        if pattern == PING_PONG:
            session.send(array)
    session.send(b"")
    with contextlib.suppress(mr.Closed):
        session.recv()


def measure(host, pattern, size, count):
    array = np.ones(size, "u1")
    with mr.connect(host, token=TOKEN) as session:
        session.send(struct.pack("<BQQ", pattern, size, count))
        began = time.perf_counter()
        for _ in range(count):
            session.send(array)
            if pattern == PING_PONG:
                session.recv_into(array)
        session.recv()
        print(time.perf_counter() - began)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", address]:
            serve(address)
        case ["stream", host, size, count]:
            measure(host, STREAM, int(size), int(count))
        case ["ping-pong", host, size, count]:
            measure(host, PING_PONG, int(size), int(count))
        case _:
            sys.exit("expected: serve ADDRESS, or stream|ping-pong HOST:PORT BYTES COUNT")

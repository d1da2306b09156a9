"""Load on rails: messages that two hosts exchange by a schedule (see plan.schedule).

    load serve MESSAGE_BYTES
    load exchange JOB.json

`exchange` begins at the second that a line of its input names, and again with each further line.
"""

import contextlib
import json
import pathlib
import socket
import sys
import threading
import time

PORT = 7800


def receive(connection, buffer):
    view, got = memoryview(buffer), 0
    while got < len(buffer):
        count = connection.recv_into(view[got:])
        if count == 0:
            raise ConnectionError("the other side has ended")
        got += count


def echo(connection, message_bytes):
    buffer = bytearray(message_bytes)
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            receive(connection, buffer)
            connection.sendall(buffer)


def serve(message_bytes):
    with socket.create_server(("0.0.0.0", PORT)) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=echo, args=(connection, message_bytes), daemon=True).start()


class Clock:
    """Seconds into the schedule, which repeats after its length."""

    def __init__(self, length_s):
        self.length_s, self.began = length_s, time.monotonic()

    def begin_at(self, offset_s):
        self.began = time.monotonic() - offset_s

    def now_s(self):
        return (time.monotonic() - self.began) % self.length_s


def exchange(events, clock, local, remote, message_bytes):
    """A load on one rail: a message there and back, then a pause."""
    buffer = bytearray(message_bytes)
    with socket.create_connection((remote, PORT), source_address=(local, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            now_s = clock.now_s()
            pause_us = [event["pause_us"] for event in events if event["at_s"] <= now_s][-1]
            if pause_us < 0:
                time.sleep(0.005)
                continue
            connection.sendall(buffer)
            receive(connection, buffer)
            time.sleep(pause_us / 1e6)


def main():
    if sys.argv[1] == "serve":
        return serve(int(sys.argv[2]))
    job = json.loads(pathlib.Path(sys.argv[2]).read_text())
    clock = Clock(job["length_s"])
    for rail, (local, remote) in job["addresses"].items():
        events = [event for event in job["events"] if event["rail"] == int(rail)]
        for _ in range(job["connections"]):
            threading.Thread(
                target=exchange,
                args=(events, clock, local, remote, job["message_bytes"]),
                daemon=True,
            ).start()
    print("ready", flush=True)
    for line in sys.stdin:
        clock.begin_at(float(line))
    return None


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A ping-pong of small messages over one plain TCP connection.

ping.py serve PORT                answers until it is ended
ping.py ADDRESS PORT SECONDS      prints the round trips of that time, in microseconds, as JSON
"""

import json
import socket
import sys
import time

MESSAGE = b"." * 64


def receive(connection):
    """One message, or nothing at the end of the connection."""
    message = b""
    while len(message) < len(MESSAGE):
        part = connection.recv(len(MESSAGE) - len(message))
        if not part:
            return b""
        message += part
    return message


def serve(port):
    with socket.create_server(("0.0.0.0", port)) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while message := receive(connection):
                    connection.sendall(message)


def ping(address, port, seconds):
    found = []
    with socket.create_connection((address, port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = time.monotonic() + seconds
        while (started := time.monotonic()) < until:
            connection.sendall(MESSAGE)
            if not receive(connection):
                raise SystemExit("the server closed the connection")
            found.append((time.monotonic() - started) * 1e6)
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        ping(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))

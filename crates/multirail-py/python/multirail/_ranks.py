"""What all ranks of a program need to find each other: a token, and their own address."""

import os
import socket

from multirail._multirail import Token
from multirail.errors import TokenError

# Seconds without any rail to a rank after which it counts as lost. A program that was killed must
# be noticed within 5 s.
LOST_AFTER_S = 3.0


def token_of_environment() -> Token:
    """The token that MULTIRAIL_TOKEN_FILE or MULTIRAIL_TOKEN says; TokenError without one."""
    if path := os.environ.get("MULTIRAIL_TOKEN_FILE"):
        return Token.from_file(path)
    if secret := os.environ.get("MULTIRAIL_TOKEN"):
        return Token(secret)
    raise TokenError(
        "no token: set MULTIRAIL_TOKEN_FILE to a file that `multirail token` made, the same on all "
        "hosts (or MULTIRAIL_TOKEN to the secret itself)"
    )


def own_host(master: str | None) -> str:
    """The name or address at which other ranks reach this host.

    It is the address that this host uses towards the store's master. On the master itself that may
    be one of loopback, while others know it by the name of the master.
    """
    target = master or "192.0.2.1"
    try:
        family, _, _, _, address = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            own = probe.getsockname()[0]
    except OSError:
        return master or "127.0.0.1"
    is_loopback = own.startswith("127.") or own == "::1"
    return master if is_loopback and master else own

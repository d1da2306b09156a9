"""Sessions between hosts over all their network paths.

>>> from concurrent.futures import ThreadPoolExecutor
>>> import multirail as mr
>>> token = mr.Token("a secret that both hosts know")
>>> listener = mr.listen("127.0.0.1:0", token=token)
>>> connecting = ThreadPoolExecutor().submit(mr.connect, listener.address, token=token)
>>> peer = listener.accept()
>>> s = connecting.result()
>>> s.send(b"hello")
>>> peer.recv()
b'hello'
>>> s.close(); listener.close()

`multirail.aio` has the same for asyncio. The command of the same name is installed, too.
"""

import importlib
from typing import TYPE_CHECKING, Any

from multirail import _multirail, aio, weights
from multirail._multirail import (
    Listener,
    Rail,
    Server,
    Session,
    Stats,
    Token,
    connect,
    listen,
    serve,
)
from multirail.channel import Channel
from multirail.errors import (
    BroadcastFailed,
    Closed,
    CopyFailed,
    Denied,
    FilterFailed,
    Forked,
    Lost,
    MultirailError,
    Refused,
    Timeout,
    TokenError,
    TooLong,
)
from multirail.files import Report, Summary, bcast, cp
from multirail.group import Group
from multirail.pipeline import Pipeline

__version__ = _multirail.VERSION

if TYPE_CHECKING:
    from multirail import ray

__all__ = [
    "BroadcastFailed",
    "Channel",
    "Closed",
    "CopyFailed",
    "Denied",
    "FilterFailed",
    "Forked",
    "Group",
    "Listener",
    "Lost",
    "MultirailError",
    "Pipeline",
    "Rail",
    "Refused",
    "Report",
    "Server",
    "Session",
    "Stats",
    "Summary",
    "Timeout",
    "Token",
    "TokenError",
    "TooLong",
    "__version__",
    "aio",
    "bcast",
    "connect",
    "cp",
    "listen",
    "ray",
    "serve",
    "weights",
]


def __getattr__(name: str) -> Any:
    # It needs the package ray.
    if name == "ray":
        return importlib.import_module("multirail.ray")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

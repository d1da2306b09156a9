"""Copies and broadcasts of files, as `multirail.cp` and `multirail.bcast`; see `aio`, too."""

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from multirail import _multirail
from multirail._multirail import Token
from multirail.errors import BroadcastFailed, CopyFailed, TokenError
from multirail.progress import Tell, shown

Path = str | os.PathLike[str]

# An address of IPv6 is in brackets.
_HOST = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+)(:(?P<port>[0-9]{1,5}))?")
# How many failures the text of an exception has. Its report has more.
_TOLD = 3


@dataclass(frozen=True)
class Failure:
    """A file that was not copied. `host` is the server if it is the cause, and otherwise None."""

    path: str
    reason: str
    host: str | None


@dataclass(frozen=True)
class Report:
    """What a copy did. `failures` and `skipped` name at most 10,000 entries each."""

    files: int
    bytes: int
    directories: int
    links: int
    unchanged: int
    resumed_bytes: int
    failed_count: int
    failures: list[Failure]
    skipped_count: int
    skipped: list[tuple[str, str]]
    seconds: float


@dataclass(frozen=True)
class HostOutcome:
    """What a host has of a broadcast. `seconds` and `reason` are None if they do not apply."""

    host: str
    complete: bool
    reason: str | None
    cluster: int
    seconds: float | None
    held_bytes: int
    resumed_bytes: int


@dataclass(frozen=True)
class Summary:
    """The outcome of a broadcast. `bytes` is the length of the data."""

    bytes: int
    seconds: float
    hosts: list[HostOutcome]
    bytes_between_clusters: int


def cp(
    source: Path | Iterable[Path],
    destination: Path,
    *,
    token: Token,
    recursive: bool = False,
    checksum: bool = False,
    rails: str = "",
    progress: bool | Tell | None = None,
) -> Report:
    """Copy files to or from a host that serves a folder, over all rails.

    One side is `mr://HOST[:PORT]/PATH`, a path below the folder that the host serves. The other one
    is a path of this host. `source` may be a list; its items are on one host.

    As with rsync, a source goes into the destination under its name; with a slash at its end, its
    content does. A single file is named `destination`, unless that is a directory or ends in a
    slash. Files that the destination has with the same length and modification time are not sent;
    `checksum` compares contents instead. A file gets its name when its hash has been compared.

    `progress=True` draws a bar with tqdm. A function gets the bytes that have arrived and all
    bytes, or None as long as those are not known, about 20 times a second in this thread; if it
    raises, the copy ends.

    Raises `CopyFailed` if a file failed; the others are copied. Raises `Refused`, `Denied` and
    `Lost` as sessions do, and ValueError for a side that cannot be used. After Ctrl-C, no file has
    its name without its content, and the same call continues the copy. Any thread may call.
    """
    asked = copy_of(source, destination, token, recursive, checksum, rails)
    with shown(progress, "cp") as tell:
        return report_of(_multirail.copy(asked, tell))


def bcast(
    source: Path,
    to: str,
    hosts: Iterable[str],
    *,
    token: Token,
    recursive: bool = False,
    rails: str = "",
    progress: bool | Tell | None = None,
) -> Summary:
    """Send a file or a directory of this host to many hosts, which pass its pieces on.

    Each host is `NAME[:PORT]` and serves a folder; `to` is a path below these folders, with the
    meaning of the destination of `cp`. Clusters of hosts are measured, unless hosts are given as
    `"NAME cluster=X"`, and this one as `"self cluster=Y"`.

    `progress` is that of `cp`; the bytes are the sums of all hosts.

    Raises `BroadcastFailed` if a host is incomplete. The others are complete, and the same call
    continues with the pieces that the hosts hold. Any thread may call.
    """
    asked = broadcast_of(source, to, hosts, token, recursive, rails)
    with shown(progress, "bcast") as tell:
        return summary_of(_multirail.broadcast(asked, tell))


def split_url(text: Path) -> tuple[str, str] | None:
    """The host and the path of `mr://HOST[:PORT]/PATH`, or None for a path of this host."""
    text = os.fspath(text)
    if not text.startswith("mr:"):
        return None
    if not text.startswith("mr://"):
        raise ValueError(
            f"{text!r}: write 'mr://HOST[:PORT]/PATH' as text, since pathlib.Path removes a slash; "
            f"for a local file of that name, './{text}'"
        )
    host, _, path = text.removeprefix("mr://").partition("/")
    match = _HOST.fullmatch(host)
    if not match or not 0 < int(match["port"] or 1) < 1 << 16:
        raise ValueError(
            f"{text!r}: write mr://HOST[:PORT]/PATH, an IPv6 address in brackets and a port from 1 "
            "to 65535"
        )
    return host, path


def copy_of(
    source: Path | Iterable[Path],
    destination: Path,
    token: Token,
    recursive: bool,
    checksum: bool,
    rails: str,
) -> dict[str, Any]:
    """What `_multirail.copy` is asked for."""
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not sources:
        raise ValueError("there are no sources")
    remote = split_url(destination)
    places = [split_url(source) for source in sources]
    if remote is not None:
        if any(places):
            raise ValueError("both sides are remote: copy to this host first, or call cp there")
        (host, path), local = remote, [os.fspath(source) for source in sources]
    else:
        hosts = {place[0] if place else None for place in places}
        if hosts == {None}:
            raise ValueError("neither side is remote: one must be mr://HOST[:PORT]/PATH")
        if len(hosts) > 1:
            raise ValueError("the sources are on several hosts: copy from one host at a time")
        (host, _), path = places[0], os.fspath(destination)
        local = [place[1] for place in places]
    return {
        "host": host,
        "upload": remote is not None,
        "sources": local,
        "destination": path,
        "token": checked(token, host),
        "rails": rails,
        "recursive": recursive,
        "checksum": checksum,
    }


def broadcast_of(
    source: Path,
    to: str,
    hosts: Iterable[str],
    token: Token,
    recursive: bool,
    rails: str,
) -> dict[str, Any]:
    """What `_multirail.broadcast` is asked for."""
    source = os.fspath(source)
    if stat.S_ISDIR(os.stat(source).st_mode) and not recursive:
        raise IsADirectoryError(f"{source} is a directory: pass recursive=True")
    hosts = [hosts] if isinstance(hosts, str) else list(hosts)
    if os.fspath(to).startswith("/"):
        raise ValueError(f"to={to!r}: the path is below the served folders; remove the first slash")
    return {
        "source": source,
        "destination": os.fspath(to),
        "hosts": hosts,
        "token": checked(token, ", ".join(hosts)),
        "rails": rails,
        "recursive": recursive,
    }


def checked(token: Any, host: str) -> Token:
    """The token, or TokenError that says how to give one."""
    if isinstance(token, Token):
        return token
    raise TokenError(
        f"{host} needs a token, and {token!r} is none: pass token=multirail.Token.from_file(PATH) "
        "with the file of the server",
        host,
    )


def report_of(made: dict[str, Any]) -> Report:
    """The report of a copy, if nothing failed."""
    report = Report(**made | {"failures": [Failure(*each) for each in made["failures"]]})
    if report.failed_count:
        told = "; ".join(failure.reason for failure in report.failures[:_TOLD])
        more = report.failed_count - min(_TOLD, len(report.failures))
        raise CopyFailed(
            f"{report.failed_count} of the entries were not copied: {told}"
            + (f"; and {more} more" if more else ""),
            next((failure.host for failure in report.failures if failure.host), None),
            report,
        )
    return report


def summary_of(made: dict[str, Any]) -> Summary:
    """The summary of a broadcast, if all hosts are complete."""
    summary = Summary(**made | {"hosts": [HostOutcome(**each) for each in made["hosts"]]})
    failed = [host for host in summary.hosts if not host.complete]
    if failed:
        told = "; ".join(f"{host.host}: {host.reason}" for host in failed[:_TOLD])
        more = len(failed) - _TOLD
        raise BroadcastFailed(
            f"{len(failed)} of {len(summary.hosts)} hosts are incomplete: {told}"
            + (f"; and {more} more" if more > 0 else ""),
            failed[0].host,
            summary,
        )
    return summary

"""Exceptions. Each says what happened and, in `host` and `rail`, where."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multirail.files import Report, Summary


class MultirailError(Exception):
    """The base of all exceptions of this package.

    `host` is the host as it was given to `connect`, or the address of the peer; None if the error
    is not about a host. `rail` is the interface of this host that cannot be used, or over which the
    session was lost; None if it is not a single one, or if the peer has connected.
    """

    rail: str | None

    def __init__(self, message: str, host: str | None = None) -> None:
        super().__init__(message)
        self.host = host
        self.rail = None


class Refused(MultirailError, ConnectionError):
    """No session could be made: nothing listens there, or something that is not multirail."""


class Timeout(MultirailError, TimeoutError):
    """The time was over."""


class Denied(MultirailError, PermissionError):
    """The two hosts do not trust each other: a token is wrong or missing, or a key is unknown."""


class Closed(MultirailError, EOFError):
    """The peer has ended the session, or this side has closed it."""


class Lost(MultirailError, ConnectionError):
    """The session is over early.

    All rails were down for too long, the peer gave up, or a call was cancelled in the middle of a
    message.
    """


class TooLong(MultirailError, ValueError):
    """A message is longer than the buffer. It stays where it is, and the session can be used."""


class TokenError(MultirailError, ValueError):
    """A token cannot be used, such as one that is too short or in a file that others may read."""


class Forked(MultirailError, RuntimeError):
    """The process was forked after it had used multirail."""


class FilterFailed(MultirailError, RuntimeError):
    """A filter of a pipeline has raised an exception, or its process has ended.

    `filter` and `copy` are the filter and the number of its copy, None if not known. The message
    has the traceback of the filter. `is_lost` says that its process or its host has ended, or
    cannot be reached any more.
    """

    def __init__(
        self,
        message: str,
        host: str | None = None,
        filter: str | None = None,
        copy: int | None = None,
    ) -> None:
        super().__init__(message, host)
        self.filter = filter
        self.copy = copy
        self.is_lost = False


class CopyFailed(MultirailError):
    """Files were not copied. `report` says which, and why; None if nothing was copied at all."""

    def __init__(
        self, message: str, host: str | None = None, report: "Report | None" = None
    ) -> None:
        super().__init__(message, host)
        self.report = report


class BroadcastFailed(MultirailError):
    """A host is incomplete. `summary` has the outcome of each; `host` is the first of them."""

    def __init__(
        self, message: str, host: str | None = None, summary: "Summary | None" = None
    ) -> None:
        super().__init__(message, host)
        self.summary = summary

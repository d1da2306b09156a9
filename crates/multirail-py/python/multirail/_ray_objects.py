"""Arrays that other processes fetch from the one that has them, over all rails."""

import itertools
import secrets
import struct
import threading
from dataclasses import dataclass
from typing import Any

from multirail import _multirail
from multirail._multirail import Session, Token
from multirail._values import decode, encode
from multirail.errors import Lost, MultirailError

CONNECT_TIMEOUT_S = 10.0
# The number of a value, and what is wanted.
_REQUEST = struct.Struct("<QB")
_GET, _RELEASE = 0, 1
# The tag of a value, and the length of its bytes.
_HEAD = struct.Struct("<QQ")
_RELEASED = 0
_MAX_HEADER_BYTES = 4096


@dataclass(frozen=True)
class Ref:
    """A value in the memory of a process. It can be pickled, and those who have it can fetch it."""

    address: str
    secret: str
    number: int

    def __repr__(self) -> str:
        return f"<multirail.ray.Ref {self.number} at {self.address}>"


class _Owner:
    """The values of this process, and the sessions of those who fetch them."""

    def __init__(self, host: str) -> None:
        self.secret = secrets.token_hex(32)
        self._listener = _multirail.listen(":0", token=Token(bytes.fromhex(self.secret)))
        port = self._listener.address.rpartition(":")[2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.values: dict[int, Any] = {}
        self.numbers = itertools.count(1)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            session = self._listener.accept()
            threading.Thread(target=self._serve, args=(session,), daemon=True).start()

    def _serve(self, session: Session) -> None:
        try:
            while True:
                number, wanted = _REQUEST.unpack(session.recv(_REQUEST.size))
                self._answer(session, number, wanted)
        except (MultirailError, struct.error):
            session.abandon()

    def _answer(self, session: Session, number: int, wanted: int) -> None:
        value = self.values.get(number) if wanted == _GET else self.values.pop(number, None)
        if value is None or wanted != _GET:
            session.send(_HEAD.pack(_RELEASED, 0))
            return
        tag, header, content = value
        session.send(_HEAD.pack(tag, memoryview(content).nbytes) + header)
        session.send(content)


_lock = threading.Lock()
_owner: list[_Owner] = []
# Sessions with owners, by address and secret, each with a lock for one exchange at a time.
_sessions: dict[tuple[str, str], tuple[threading.Lock, list[Session]]] = {}


def put(value: Any, host: str) -> Ref:
    """Keep an array or bytes in this process, which others reach at `host`, until `release`.

    It is not copied, and must not change meanwhile.
    """
    encoded = encode(value)
    with _lock:
        if not _owner:
            _owner.append(_Owner(host))
        owner = _owner[0]
    number = next(owner.numbers)
    owner.values[number] = encoded
    return Ref(owner.address, owner.secret, number)


def release(ref: Ref) -> None:
    """Let the process that has the value forget it. Any process can say so, also twice."""
    if owner := _owner_of(ref):
        owner.values.pop(ref.number, None)
    else:
        _exchange(ref, _RELEASE)


def get(ref: Ref) -> Any:
    """The value, in new memory; an array may be written to.

    Raises LookupError if it was released, and Lost if its process has ended.
    """
    if owner := _owner_of(ref):
        value = owner.values.get(ref.number)
        if value is not None:
            tag, header, content = value
            return decode(tag, bytearray().join((header, content)))
    elif (received := _exchange(ref, _GET)) is not None:
        return decode(*received)
    raise LookupError(f"{ref} was released")


def _owner_of(ref: Ref) -> _Owner | None:
    return next((owner for owner in _owner if owner.secret == ref.secret), None)


def _exchange(ref: Ref, wanted: int) -> tuple[int, bytearray] | None:
    """Ask the owner, over a session that stays for the next time."""
    with _lock:
        key = ref.address, ref.secret
        lock, sessions = _sessions.setdefault(key, (threading.Lock(), []))
    with lock:
        try:
            if not sessions:
                token = Token(bytes.fromhex(ref.secret))
                made = _multirail.connect(ref.address, token=token, timeout=CONNECT_TIMEOUT_S)
                sessions.append(made)
            return _asked(sessions[0], ref.number, wanted)
        except BaseException as error:
            # What would come next in this session is unknown.
            while sessions:
                sessions.pop().abandon()
            if isinstance(error, MultirailError):
                raise Lost(f"the process of {ref} has ended, or: {error}", ref.address) from error
            raise


def _asked(session: Session, number: int, wanted: int) -> tuple[int, bytearray] | None:
    session.send(_REQUEST.pack(number, wanted))
    message = session.recv(_MAX_HEADER_BYTES)
    tag, length = _HEAD.unpack_from(message)
    if tag == _RELEASED:
        return None
    header = message[_HEAD.size :]
    # The system gives memory where bytes arrive, and not before.
    buffer = bytearray(len(header) + length)
    buffer[: len(header)] = header
    session.recv_into(memoryview(buffer)[len(header) :])
    return tag, buffer

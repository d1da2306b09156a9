"""What tests share: two ends of a session on loopback."""

import concurrent.futures
import contextlib
import socket
import threading

import multirail as mr

TOKEN = mr.Token("a secret for these tests")
# Seconds that an end may take; the tests fail instead of standing still.
LIMIT_S = 20


@contextlib.contextmanager
def pair():
    """The two ends of a session."""
    with mr.listen("127.0.0.1:0", token=TOKEN) as listener:
        accepted = in_thread(lambda: listener.accept(timeout=LIMIT_S))
        ends = mr.connect(listener.address, token=TOKEN, timeout=LIMIT_S), accepted()
        try:
            yield ends
        finally:
            for end in ends:
                end.abandon()


def in_thread(call):
    """Runs a call in a thread; returns a function that waits for its result."""
    result = concurrent.futures.Future()

    def run():
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    # A call that does not return must not hold up the end of the tests.
    threading.Thread(target=run, daemon=True).start()
    return lambda: result.result(LIMIT_S)


class Relay:
    """Passes connections on to an address, until it cuts them; then it answers nothing."""

    def __init__(self, to):
        host, _, port = to.rpartition(":")
        self._to = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets = []
        self._is_cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while not self._is_cut.is_set():
                ends = self._listener.accept()[0], socket.create_connection(self._to)
                if self._is_cut.is_set():
                    ends[1].close()
                self._sockets += ends
                for source, target in (ends, ends[::-1]):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut(self):
        self._is_cut.set()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.cut()
        for end in (self._listener, *self._sockets):
            end.close()

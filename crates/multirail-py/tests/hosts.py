"""What tests share: two ends of a session on loopback."""

import concurrent.futures
import contextlib
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

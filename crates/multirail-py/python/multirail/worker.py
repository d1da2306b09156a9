"""`python -m multirail.worker` runs filters for pipelines of other hosts.

Those who know the token run any code on this host as the user of this process.
"""

import argparse
import json
import sys
import threading

from multirail import Listener, MultirailError, Session, Token, listen
from multirail._child import MAX_FUNCTION_BYTES, MAX_REQUEST_BYTES
from multirail._start import PORT, Child

# Filters that run at a time.
MAX_WORKERS = 256


def serve(listener: Listener) -> None:
    """Start a worker for each session, until the listener is closed."""
    free = threading.BoundedSemaphore(MAX_WORKERS)
    while True:
        session = listener.accept()
        threading.Thread(target=_serve, args=(session, free), daemon=True).start()


def _serve(session: Session, free: threading.BoundedSemaphore) -> None:
    try:
        request = json.loads(session.recv(MAX_REQUEST_BYTES))
        function = session.recv(MAX_FUNCTION_BYTES)
        if not free.acquire(blocking=False):
            _answer(session, {"error": f"this host runs {MAX_WORKERS} filters already"})
            return
        try:
            _run(session, Child(request, function))
        finally:
            free.release()
    except (MultirailError, ValueError) as error:
        print(f"{session.host}: {error}", file=sys.stderr)
    finally:
        session.abandon()


def _run(session: Session, child: Child) -> None:
    def tell_the_end() -> None:
        child.wait()
        session.abandon()

    try:
        _answer(session, child.answer())
        threading.Thread(target=tell_the_end, daemon=True).start()
        # The driver sends nothing more. Its end raises.
        session.recv(0)
    except MultirailError:
        pass
    finally:
        child.stop()


def _answer(session: Session, answer: dict[str, str]) -> None:
    session.send(json.dumps(answer).encode())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m multirail.worker",
        description="Runs filters for pipelines of other hosts. Those who know the token run any "
        "code here as the user of this process.",
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        default=f":{PORT}",
        help="where drivers connect; default %(default)s",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", required=True, help="the secret, as for multirail serve"
    )
    options = parser.parse_args()
    try:
        listener = listen(options.listen, token=Token.from_file(options.token_file))
        print(f"listening {listener.address}", flush=True)
        serve(listener)
    except (MultirailError, OSError, ValueError) as error:
        sys.exit(f"multirail.worker: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

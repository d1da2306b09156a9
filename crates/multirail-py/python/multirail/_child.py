"""A worker: a process that runs a function as a filter, for the process that started it.

`main` reads a request from its standard input: a line of JSON, then the pickled function. It
answers with a line of JSON, and ends when its standard input ends. What the function prints goes to
the standard error.
"""

import json
import os
import pickle
import sys
import threading
from multiprocessing import spawn
from typing import Any

from multirail import Token
from multirail._filters import of_function, text_of
from multirail._multirail import VERSION, serve_filter

# Those of Python's bytecode, which a pickled function may have, and of multirail.
VERSIONS = [f"Python {sys.version_info[0]}.{sys.version_info[1]}", f"multirail {VERSION}"]
# The longest pickled function.
MAX_FUNCTION_BYTES = 64 << 20
# The longest request without the function.
MAX_REQUEST_BYTES = 1 << 20
# Set while a worker runs the main module of the program, where the function may be.
is_loading_main = threading.Event()


def serve(request: dict[str, Any], pickled: bytes) -> dict[str, str]:
    """Serve a function until the process ends, and return the address or the error."""
    try:
        if request["versions"] != VERSIONS:
            raise RuntimeError(f"this host has {VERSIONS}, and the driver {request['versions']}")
        if preparation := request.get("preparation"):
            is_loading_main.set()
            spawn.prepare(preparation)
            is_loading_main.clear()
        for path in request.get("path", []):
            if path not in sys.path:
                sys.path.append(path)
        function = of_function(pickle.loads(pickled), request["stream"])
        token = Token(bytes.fromhex(request["secret"]))
        return {"address": serve_filter(request["listen"], token, function)}
    except Exception as error:
        return {"error": text_of(error)}


def main() -> None:
    # What the function prints must not become an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    request = json.loads(requests.readline(MAX_REQUEST_BYTES))
    pickled = requests.read(request["bytes"])
    print(json.dumps(serve(request, pickled)), file=answers, flush=True)
    requests.read()
    os._exit(0)

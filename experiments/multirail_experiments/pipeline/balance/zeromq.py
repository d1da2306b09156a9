"""The load balancer in ZeroMQ: PUSH to three PULL sockets, one a process; answers use PUSH."""

import json
import multiprocessing
import os
import tempfile
import time

from multirail_experiments.pipeline.balance import node as balance

# The number of messages that a socket may hold at each end.
LIMIT = 4


def run(job):
    return [{**row, "line": "ZeroMQ"} for row in balance.run_as_program(__spec__.name, job)]


def node(copy, work, results, ns_per_byte, factor):
    import zmq

    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.setsockopt(zmq.RCVHWM, LIMIT)
    pull.connect(work)
    push.connect(results)
    worker = balance.Node(copy, ns_per_byte, factor)
    push.send(b"r")
    while True:
        block = pull.recv()
        if not block:
            break
        worker.compute(len(block))
        push.send(bytes([copy]))


def main(job):
    import zmq

    work = job["measure"]["balance"]
    with tempfile.TemporaryDirectory(prefix="multirail-zeromq-") as folder:
        addresses = [f"ipc://{os.path.join(folder, name)}" for name in ("work", "results")]
        context = zmq.Context()
        push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        push.setsockopt(zmq.SNDHWM, LIMIT)
        push.bind(addresses[0])
        pull.bind(addresses[1])
        nodes = [
            multiprocessing.Process(
                target=node, args=(copy, *addresses, job["compute_ns_per_byte"], work["factor"])
            )
            for copy in range(balance.NODES)
        ]
        for process in nodes:
            process.start()
        for _ in nodes:
            pull.recv()
        count, block = work["total_bytes"] // work["chunk_bytes"], bytes(work["chunk_bytes"])
        since, sent, done, blocks = time.monotonic(), 0, 0, [0] * balance.NODES
        while done < count:
            events = dict(poller(zmq, push if sent < count else None, pull).poll())
            if push in events:
                push.send(block)
                sent += 1
            if pull in events:
                blocks[pull.recv()[0]] += 1
                done += 1
        took_s = time.monotonic() - since
        for process in nodes:
            process.terminate()
            process.join()
        context.destroy(linger=0)
    print(json.dumps(balance.row(job, took_s, blocks)))


def poller(zmq, push, pull):
    found = zmq.Poller()
    found.register(pull, zmq.POLLIN)
    if push is not None:
        found.register(push, zmq.POLLOUT)
    return found


if __name__ == "__main__":
    main(balance.job_of_stdin())

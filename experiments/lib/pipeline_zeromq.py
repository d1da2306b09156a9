"""The load balancer in ZeroMQ: PUSH to three PULL sockets, one a process; their answers come back by PUSH."""

import json
import multiprocessing
import os
import tempfile
import time

import pipeline_balance

# Messages that a socket may hold at each end.
LIMIT = 4


def run(job):
    return [{**row, "line": "ZeroMQ"} for row in pipeline_balance.run_as_program(__file__, job)]


def node(copy, work, results, ns_per_byte, factor):
    import zmq

    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.setsockopt(zmq.RCVHWM, LIMIT)
    pull.connect(work)
    push.connect(results)
    worker = pipeline_balance.Node(copy, ns_per_byte, factor)
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
        nodes = [multiprocessing.Process(target=node, args=(copy, *addresses, job["compute_ns_per_byte"], work["factor"]))
                 for copy in range(pipeline_balance.NODES)]
        for process in nodes:
            process.start()
        for _ in nodes:
            pull.recv()
        count, block = work["total_bytes"] // work["chunk_bytes"], bytes(work["chunk_bytes"])
        since, sent, done, blocks = time.monotonic(), 0, 0, [0] * pipeline_balance.NODES
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
    print(json.dumps(pipeline_balance.row(job, took_s, blocks)))


def poller(zmq, push, pull):
    found = zmq.Poller()
    found.register(pull, zmq.POLLIN)
    if push is not None:
        found.register(push, zmq.POLLOUT)
    return found


if __name__ == "__main__":
    main(pipeline_balance.job_of_stdin())

"""The load balancer in Ray: each of three actors of a pool gets an array when it is idle."""

import json
import time

from multirail_experiments.pipeline.balance import node as balance


def run(job):
    return [{**row, "line": "Ray"} for row in balance.run_as_program(__spec__.name, job)]


def main(job):
    import numpy
    import ray
    from ray.util import ActorPool

    ray.init(
        num_cpus=balance.NODES, include_dashboard=False, logging_level="ERROR", log_to_driver=False
    )
    work = job["measure"]["balance"]

    @ray.remote
    class Worker:
        def __init__(self, copy):
            self.copy, self.node = (
                copy,
                balance.Node(copy, job["compute_ns_per_byte"], work["factor"]),
            )

        def compute(self, block):
            self.node.compute(block.nbytes)
            return self.copy

    workers = [Worker.remote(copy) for copy in range(balance.NODES)]
    block = numpy.zeros(work["chunk_bytes"], dtype=numpy.uint8)
    ray.get([worker.compute.remote(block) for worker in workers])
    count, blocks = work["total_bytes"] // work["chunk_bytes"], [0] * balance.NODES
    since = time.monotonic()
    for copy in ActorPool(workers).map_unordered(
        lambda worker, item: worker.compute.remote(item), [block] * count
    ):
        blocks[copy] += 1
    took_s = time.monotonic() - since
    ray.shutdown()
    print(json.dumps(balance.row(job, took_s, blocks)))


if __name__ == "__main__":
    main(balance.job_of_stdin())

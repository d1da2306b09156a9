"""The load balancer in Ray: a pool of three actors, each of which gets an array when it is done with one."""

import json
import time

import pipeline_balance


def run(job):
    return [{**row, "line": "Ray"} for row in pipeline_balance.run_as_program(__file__, job)]


def main(job):
    import numpy
    import ray
    from ray.util import ActorPool

    ray.init(num_cpus=pipeline_balance.NODES, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    work = job["measure"]["balance"]

    @ray.remote
    class Worker:
        def __init__(self, copy):
            self.copy, self.node = copy, pipeline_balance.Node(copy, job["compute_ns_per_byte"], work["factor"])

        def compute(self, block):
            self.node.compute(block.nbytes)
            return self.copy

    workers = [Worker.remote(copy) for copy in range(pipeline_balance.NODES)]
    block = numpy.zeros(work["chunk_bytes"], dtype=numpy.uint8)
    ray.get([worker.compute.remote(block) for worker in workers])
    count, blocks = work["total_bytes"] // work["chunk_bytes"], [0] * pipeline_balance.NODES
    since = time.monotonic()
    for copy in ActorPool(workers).map_unordered(lambda worker, item: worker.compute.remote(item), [block] * count):
        blocks[copy] += 1
    took_s = time.monotonic() - since
    ray.shutdown()
    print(json.dumps(pipeline_balance.row(job, took_s, blocks)))


if __name__ == "__main__":
    main(pipeline_balance.job_of_stdin())

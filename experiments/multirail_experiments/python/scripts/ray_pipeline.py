"""The driver, on the first of HOSTS nodes: `ray_pipeline ray|multirail HOSTS BYTES COUNT [MARK]`.

Host b makes COUNT arrays, the copies on c, d and so on invert them, and host a sums them up. With
MARK, the copy that gets the array in the middle makes the file MARK and is killed, once.
"""

import json
import os
import signal
import sys
import time

import numpy as np
import ray

READY_S = 60
# Arrays that have been made and not been taken in, for each copy in the middle. With more, Ray is
# slower: its nodes fetch the arrays of all calls that wait at the same time.
WINDOW = 3


def made(number, size):
    return np.full(size, number % 251, "u1")


def inverted(array, fatal):
    """`fatal` is None, or the first element of the array that kills the process, and the mark."""
    if fatal is not None and array[0] == fatal[0]:
        try:
            os.close(os.open(fatal[1], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return 255 - array


def total(array):
    return int(array.sum(dtype="u8"))


def with_ray(copies, size, fatal):
    """Actors whose results stay in the object store until the next one fetches them."""

    @ray.remote
    class Source:
        def make(self, number):
            return made(number, size)

    # Calls of an actor that has died are made again, as in the other line.
    @ray.remote(max_restarts=-1, max_task_retries=-1)
    class Invert:
        def invert(self, array):
            return inverted(array, fatal)

    @ray.remote
    class Sink:
        def take(self, array):
            return total(array)

    def at(actor, place):
        return actor.options(num_cpus=0, resources={place: 1}).remote()

    source, sink = at(Source, "host_b"), at(Sink, "host_a")
    inverts = [at(Invert, "middle") for _ in range(copies)]

    def run(count):
        found, waits = 0, []
        for number in range(count):
            array = source.make.remote(number)
            waits.append(sink.take.remote(inverts[number % copies].invert.remote(array)))
            if len(waits) >= WINDOW * copies:
                done, waits = ray.wait(waits, num_returns=1)
                found += sum(ray.get(done))
        return found + sum(ray.get(waits))

    return run


def with_multirail(copies, size, fatal):
    import multirail as mr

    pipeline = mr.ray.Pipeline()

    @pipeline.filter(stream=True, num_cpus=0, resources={"host_b": 1})
    def make(counts):
        for count in counts:
            for number in range(int(count[0])):
                yield made(number, size)

    @pipeline.filter(copies=copies, stateless=True, num_cpus=0, resources={"middle": 1})
    def invert(array):
        return inverted(array, fatal)

    @pipeline.filter(stream=True, num_cpus=0, resources={"host_a": 1})
    def take(arrays):
        yield np.array([sum(total(one) for one in arrays)])

    def run(count):
        ((found,),) = pipeline.run([np.array([count])])
        return found

    return run


def main():
    line, hosts, size, count = sys.argv[1], *map(int, sys.argv[2:5])
    # The arrays of the first run are others.
    fatal = (count // 2, sys.argv[5]) if len(sys.argv) > 5 else None
    ray.init(logging_level="ERROR", log_to_driver=False)
    deadline = time.monotonic() + READY_S
    while sum(node["Alive"] for node in ray.nodes()) < hosts:
        if time.monotonic() > deadline:
            sys.exit(f"only {len(ray.nodes())} of {hosts} nodes after {READY_S} s")
        time.sleep(0.2)
    copies = hosts - 2
    run = {"ray": with_ray, "multirail": with_multirail}[line](copies, size, fatal)
    # Actors start, and connections are made.
    run(copies)
    began = time.perf_counter()
    found = run(count)
    took_s = time.perf_counter() - began
    expected = sum(total(255 - made(number, size)) for number in range(count))
    if found != expected:
        sys.exit(f"the sum is {found} instead of {expected}")
    if fatal is not None and not os.path.exists(fatal[1]):
        sys.exit("no actor was killed")
    print(json.dumps({"mb_s": count * size / took_s / 1e6}))
    ray.shutdown()


if __name__ == "__main__":
    main()

"""Arrays of NumPy from this process to another: `channel LINE BYTES SECONDS`."""

import atexit
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time

import numpy as np

# The first arrays find out how long one takes.
FEW = 50
PAGE_BYTES = 4096
# A folder must be gone in so many looks in turn, 0.1 s apart.
REMOVAL_TRIES, QUIET_LOOKS = 100, 10
# Tasks of Ray that have no answer yet.
RAY_WINDOW = 32


def touch(array):
    """Writes to each page."""
    array[::PAGE_BYTES] = 1


def folder_of(prefix):
    """A folder in memory, which is removed when the program ends."""
    folder = tempfile.mkdtemp(prefix=prefix, dir="/dev/shm")
    atexit.register(remove, folder)
    return folder


def remove(folder):
    """Removes a folder in which processes of Ray may still write as they end."""
    looks = 0
    for _ in range(REMOVAL_TRIES):
        looks = 0 if os.path.exists(folder) else looks + 1
        if looks == QUIET_LOOKS:
            return
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)


def look(array):
    """Reads from each page, so that no library can leave the memory of an array out."""
    return int(array[::PAGE_BYTES].sum())


def channel_receive(channel, counts, sums):
    for count in iter(counts.get, 0):
        sums.put(sum(look(channel.recv()) for _ in range(count)))


def with_channel(array):
    channel, run = open_channel(array.nbytes)

    def send():
        touch(array)
        channel.send(array)

    return lambda count: run(count, send)


def with_channel_in_place(array):
    channel, run = open_channel(array.nbytes)

    def send():
        made = channel.empty(array.shape, array.dtype)
        touch(made)
        channel.send(made)

    return lambda count: run(count, send)


def open_channel(size):
    """A channel to another process, and a function that calls `send` as often as it is told."""
    import multirail as mr

    spawn = multiprocessing.get_context("spawn")
    channel = mr.Channel(value_bytes=size)
    counts, sums = spawn.Queue(), spawn.Queue()
    args = channel, counts, sums
    spawn.Process(target=channel_receive, args=args, daemon=True).start()

    def run(count, send):
        counts.put(count)
        for _ in range(count):
            send()
        return sums.get()

    return channel, run


def receive(arrays):
    yield np.array([sum(look(one) for one in arrays)])


def with_pipeline(array):
    import multirail as mr

    pipeline = mr.Pipeline()
    pipeline.filter(stream=True)(receive)

    def stream(count):
        def arrays():
            for _ in range(count):
                touch(array)
                yield array

        ((found,),) = pipeline.run(arrays())
        return found

    return stream


def zeromq_receive(there, back):
    import zmq

    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.bind(there)
    push.connect(back)
    while True:
        count = int(pull.recv())
        push.send(str(sum(look(received(pull)) for _ in range(count))).encode())


def received(pull):
    return np.frombuffer(pull.recv(copy=False).buffer, "u1")


def with_zeromq(array):
    import zmq

    folder = folder_of("zeromq-")
    there, back = (f"ipc://{folder}/{name}" for name in ("there", "back"))
    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.bind(back)
    multiprocessing.Process(target=zeromq_receive, args=(there, back), daemon=True).start()
    push.connect(there)

    def stream(count):
        push.send(str(count).encode())
        for _ in range(count):
            touch(array)
            push.send(array, copy=False)
        return int(pull.recv())

    return stream


def with_ray(array):
    # Before the import, so that it is removed after Ray has ended its processes.
    folder = folder_of("ray-")
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        object_store_memory=1 << 30,
        _temp_dir=folder,
    )

    @ray.remote
    class Receiver:
        def __init__(self):
            self.found = 0

        def take(self, array):
            self.found += look(array)

        def result(self):
            found, self.found = self.found, 0
            return found

    receiver = Receiver.remote()

    def stream(count):
        waits = []
        for _ in range(count):
            touch(array)
            waits.append(receiver.take.remote(array))
            if len(waits) >= RAY_WINDOW:
                _, waits = ray.wait(waits, num_returns=RAY_WINDOW // 2)
        return ray.get(receiver.result.remote())

    return stream


WITH = {
    "multirail.Channel": with_channel,
    "multirail.Channel.empty": with_channel_in_place,
    "multirail.Pipeline": with_pipeline,
    "ZeroMQ": with_zeromq,
    "Ray": with_ray,
}


def main():
    library, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    array = np.ones(size, "u1")
    stream = WITH[library](array)
    stream(FEW)
    began = time.perf_counter()
    stream(FEW)
    count = max(FEW, int(seconds * FEW / (time.perf_counter() - began)))
    began = time.perf_counter()
    found = stream(count)
    took_s = time.perf_counter() - began
    if found != count * look(array):
        sys.exit(f"the receiver has found {found} instead of {count * look(array)}")
    print(json.dumps({"mb_s": count * size / took_s / 1e6}))


if __name__ == "__main__":
    main()

"""Bandwidth of another library: messages one way, then one small answer.

edges/measure.py calls this module with the library's name, seconds and sizes. It prints a JSON line
for each size. As with `multirail bench --transports`, both sides reuse their buffers where the
library lets them, and no one reads the content.
"""

import argparse
import json
import multiprocessing
import tempfile
import time

MAX_COUNT = 1 << 20


def stretched(stream, seconds):
    """Seconds a message takes: streams get longer until one takes half of `seconds`."""
    stream(2)
    count = 4
    while True:
        begun = time.perf_counter()
        stream(count)
        took = time.perf_counter() - begun
        if took >= seconds / 2 or count >= MAX_COUNT:
            return took / count
        count = min(
            MAX_COUNT,
            max(count + 1, min(count * 16, int(1.2 * count * seconds / 2 / max(took, 1e-6)))),
        )


def report(size, a_message_s):
    print(
        json.dumps({"message_bytes": size, "bandwidth_mbit_s": size * 8 / a_message_s / 1e6}),
        flush=True,
    )


# ZeroMQ, PUSH to PULL. Without copy=False, the library copies once. The kernel copies in and out of
# a Unix socket or TCP, with an I/O thread on each side.
def zeromq_receive(address, answers):
    import zmq

    context = zmq.Context()
    pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    pull.bind(address)
    push.connect(answers)
    while True:
        message = pull.recv(copy=False)
        if len(message) == 1:
            push.send(b"x")
        elif len(message) == 0:
            break
    context.destroy(linger=1000)


def zeromq(addresses, sizes, seconds):
    import zmq

    address, answers = addresses
    context = zmq.Context()
    back = context.socket(zmq.PULL)
    back.bind(answers)
    receiver = multiprocessing.Process(target=zeromq_receive, args=(address, answers))
    receiver.start()
    push = context.socket(zmq.PUSH)
    push.connect(address)
    for size in sizes:
        data = bytes(size + 2)[:size]

        def stream(count):
            for _ in range(count):
                push.send(data, copy=False)
            push.send(b"?")
            back.recv()

        report(size, stretched(stream, seconds))
    push.send(b"")
    receiver.join(10)
    context.destroy(linger=0)


# Flight: DoPut of record batches with one column of bytes over gRPC, HTTP/2 and TCP. The receiver's
# server is C++.
def flight_serve(tell):
    import pyarrow.flight as flight

    class Server(flight.FlightServerBase):
        def do_put(self, context, descriptor, reader, writer):
            for _ in reader:
                pass
            writer.write(b"x")

    server = Server("grpc://127.0.0.1:0")
    tell.send(server.port)
    server.serve()


def flight(sizes, seconds):
    import pyarrow
    import pyarrow.flight as flight

    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=flight_serve, args=(there,), daemon=True)
    server.start()
    client = flight.connect(f"grpc://127.0.0.1:{here.recv()}")
    for size in sizes:
        column = pyarrow.FixedSizeBinaryArray.from_buffers(
            pyarrow.binary(size), 1, [None, pyarrow.py_buffer(bytes(size))]
        )
        batch = pyarrow.record_batch([column], names=["bytes"])

        def stream(count):
            writer, answer = client.do_put(flight.FlightDescriptor.for_path("edge"), batch.schema)
            for _ in range(count):
                writer.write_batch(batch)
            writer.done_writing()
            answer.read()
            writer.close()

        report(size, stretched(stream, seconds))
    client.close()
    server.terminate()
    server.join()


# Ray: an actor gets numpy arrays as arguments. Large ones are copied into the object store's shared
# memory and read there without a copy. A message is a task that passes each process's core worker.
# At most WINDOW tasks are unanswered.
WINDOW = 32


def ray_actors(sizes, seconds):
    import numpy
    import ray

    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
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
            def take(self, array):
                return len(array)

        receiver = Receiver.remote()
        ray.get(receiver.take.remote(numpy.zeros(1, numpy.uint8)))
        for size in sizes:
            array = numpy.zeros(size, numpy.uint8)

            def stream(count):
                waits = []
                for _ in range(count):
                    waits.append(receiver.take.remote(array))
                    if len(waits) >= WINDOW:
                        _, waits = ray.wait(waits, num_returns=WINDOW // 2)
                ray.get(waits)

            report(size, stretched(stream, seconds))
        ray.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=("zeromq-ipc", "zeromq-tcp", "flight", "ray"))
    parser.add_argument(
        "--try", action="store_true", dest="trial", help="only say whether it is there"
    )
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("sizes", type=int, nargs="*")
    args = parser.parse_intermixed_args()
    if args.trial:
        __import__({"flight": "pyarrow.flight", "ray": "ray"}.get(args.peer, "zmq"))
    elif args.peer == "flight":
        flight(args.sizes, args.seconds)
    elif args.peer == "ray":
        ray_actors(args.sizes, args.seconds)
    else:
        with tempfile.TemporaryDirectory(prefix="zeromq-") as folder:
            addresses = [f"ipc://{folder}/{name}" for name in ("there", "back")]
            if args.peer == "zeromq-tcp":
                addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports()]
            zeromq(addresses, args.sizes, args.seconds)


def free_ports():
    import socket

    with socket.socket() as one, socket.socket() as other:
        for found in (one, other):
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in (one, other)]


if __name__ == "__main__":
    main()

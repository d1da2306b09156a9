"""The backend "multirail" of `torch.distributed`: collective operations over all rails.

    torch.distributed.init_process_group("multirail")

The package's entry point makes the name known to PyTorch; with versions of PyTorch that do not look
for it, `import multirail.torch` does. Tensors must be in the memory of the processor.
"""

import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import multirail as mr
from multirail._collectives import Collectives
from multirail._mesh import Mesh
from multirail._messages import Peer
from multirail._torch_work import Work
from multirail._transfers import Transfers, code_of, memory

__all__ = ["register"]

_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor",
    dist.ReduceOp.BXOR: "bxor",
}


class _Multirail(dist.ProcessGroup):
    """The operations of one process group, in the order in which they were called."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._timeout_s = timeout.total_seconds()
        self._mesh = Mesh(store, rank, size, self._timeout_s)
        self._transfers = Transfers(self._mesh)
        self._collectives = Collectives(self._transfers)
        self._peers: dict[int, Peer] = {}
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._submitting = threading.Lock()
        self._running = threading.Lock()
        self._pending = 0
        threading.Thread(target=self._run_all, name="multirail-group", daemon=True).start()

    def _run_all(self) -> None:
        while (call := self._calls.get()) is not None:
            with self._running:
                call()

    def _submit(
        self, call: Callable[[], None], options: Any, results: list[torch.Tensor],
        name: str, dtype: torch.dtype | None, **head: Any,
    ) -> Work:  # fmt: skip
        """Runs an operation after those before it: in the calling thread if that waits anyway and
        there are none, else in the group's thread."""
        if dtype is not None:
            code_of(dtype)
        work = Work(results)
        timeout_s = getattr(options, "timeout", timedelta(0)).total_seconds()

        def run() -> None:
            error: BaseException | None = None
            try:
                limit_s = timeout_s if timeout_s > 0 else self._timeout_s
                self._transfers.begin(name, dtype, limit_s, **head)
                with torch.no_grad():
                    call()
            except (mr.MultirailError, KeyboardInterrupt) as raised:
                error = raised
            except BaseException as raised:
                # The other ranks wait for this one.
                self._mesh.fail(mr.Lost(f"{self._mesh.name(self._rank)}: {raised!r}"))
                error = raised
            with self._submitting:
                self._pending -= 1
                self._mesh.waiting -= 1
            work.end(error)

        with self._submitting:
            is_here = self._pending == 0 and not getattr(options, "asyncOp", True)
            self._pending += 1
            self._mesh.waiting += 1
            if is_here:
                self._running.acquire()
            else:
                self._calls.put(run)
        if is_here:
            try:
                run()
            finally:
                self._running.release()
        return work

    def _reduction(self, options: Any, tensor: torch.Tensor) -> str:
        operation = options.reduceOp
        name = _REDUCTIONS.get(getattr(operation, "op", operation))
        if name is None:
            raise ValueError(f"the backend multirail has no {operation}")
        if name.startswith("b") and tensor.is_floating_point():
            raise ValueError(f"{operation} is not for tensors of {tensor.dtype}")
        return name

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        (tensor,) = tensors
        made = _contiguous(tensor)

        def call() -> None:
            self._collectives.broadcast(made, opts.rootRank)
            _copy_back(tensor, made)

        return self._submit(call, opts, tensors, "broadcast", tensor.dtype, root=opts.rootRank)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        (tensor,) = tensors
        reduction, made = self._reduction(opts, tensor), _contiguous(tensor)

        def call() -> None:
            self._collectives.all_reduce(made, reduction)
            _copy_back(tensor, made)

        return self._submit(call, opts, tensors, "all_reduce", tensor.dtype, reduction=reduction)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        reduction = self._reduction(opts, tensors[0])
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise ValueError("the tensors of one coalesced all_reduce must have one dtype")
        for tensor in tensors:
            _check(tensor)

        def call() -> None:
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
            self._collectives.all_reduce(flat, reduction)
            parts = flat.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.detach().copy_(part.view(tensor.shape))

        dtype = tensors[0].dtype
        return self._submit(call, opts, tensors, "all_reduce", dtype, reduction=reduction)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        (tensor,) = tensors
        reduction, made, root = self._reduction(opts, tensor), _contiguous(tensor), opts.rootRank

        def call() -> None:
            self._collectives.reduce(made, root, reduction)
            if self._rank == root:
                _copy_back(tensor, made)

        return self._submit(
            call, opts, tensors, "reduce", tensor.dtype, reduction=reduction, root=root
        )

    def _gather_all(self, outputs: list[torch.Tensor], own: torch.Tensor, opts: Any) -> Work:
        own, made = _contiguous(own), [_contiguous(output) for output in outputs]
        _same(own, outputs)

        def call() -> None:
            made[self._rank].copy_(own.view(made[self._rank].shape))
            self._collectives.all_gather([memory(block) for block in made])
            for output, block in zip(outputs, made, strict=True):
                _copy_back(output, block)

        return self._submit(call, opts, outputs, "all_gather", own.dtype)

    def allgather(
        self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any
    ) -> Work:
        return self._gather_all(output_tensors[0], input_tensors[0], opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        made = _contiguous(output)
        work = self._gather_all(list(made.view(-1).chunk(self._size)), input.reshape(-1), opts)
        return self._copying_back(work, [(output, made)], opts)

    _allgather_base = all_gather_single

    def allgather_coalesced(
        self, output_lists: list[list[torch.Tensor]], input_list: list[torch.Tensor], opts: Any
    ) -> Work:
        pairs = zip(zip(*output_lists, strict=True), input_list, strict=True)
        return [self._gather_all(list(outputs), own, opts) for outputs, own in pairs][-1]

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        pairs = zip(outputs, inputs, strict=True)
        return [self.all_gather_single(output, own, opts) for output, own in pairs][-1]

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _copying_back(self, work: Work, pairs: list[tuple[Any, Any]], opts: Any) -> Work:
        """Outputs that are not contiguous get their values when the operation before is over."""
        if all(output.data_ptr() == made.data_ptr() for output, made in pairs):
            return work
        work.wait()
        for output, made in pairs:
            output.detach().copy_(made)
        return work

    def reduce_scatter(
        self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        output, parts = output_tensors[0], input_tensors[0]
        _same(output, parts)
        flat = torch.cat([part.detach().reshape(-1) for part in parts])
        return self._reduce_parts(output, flat, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        if input.numel() != output.numel() * self._size:
            raise ValueError(
                f"reduce_scatter: the input has {input.numel()} elements, and {self._size} ranks "
                f"with outputs of {output.numel()} need {output.numel() * self._size}"
            )
        _check(input)
        return self._reduce_parts(output, input.detach().reshape(-1).clone(), opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        pairs = zip(outputs, inputs, strict=True)
        return [self.reduce_scatter_single(output, own, opts) for output, own in pairs][-1]

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_parts(self, output: torch.Tensor, flat: torch.Tensor, opts: Any) -> Work:
        reduction = self._reduction(opts, flat)

        def call() -> None:
            own = self._collectives.reduce_scatter(flat, reduction)
            output.detach().copy_(own.view(output.shape))

        return self._submit(call, opts, [output], "reduce_scatter", flat.dtype, reduction=reduction)

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor,
        output_split_sizes: list[int], input_split_sizes: list[int], opts: Any,
    ) -> Work:  # fmt: skip
        made, given = _contiguous(output), _contiguous(input)

        def blocks(tensor: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
            if not sizes:
                if tensor.size(0) % self._size:
                    raise ValueError(
                        f"all_to_all: {tensor.size(0)} rows are no multiple of {self._size} ranks"
                    )
                sizes = [tensor.size(0) // self._size] * self._size
            return list(tensor.split(list(sizes)))

        pairs = blocks(made, output_split_sizes), blocks(given, input_split_sizes)
        work = self._all_to_all(*pairs, opts, [output])
        return self._copying_back(work, [(output, made)], opts)

    alltoall_base = all_to_all_single

    def alltoall(
        self, output_tensors: list[torch.Tensor], input_tensors: list[torch.Tensor], opts: Any
    ) -> Work:
        made = [_contiguous(output) for output in output_tensors]
        given = [_contiguous(own) for own in input_tensors]
        work = self._all_to_all(made, given, opts, output_tensors)
        return self._copying_back(work, list(zip(output_tensors, made, strict=True)), opts)

    def _all_to_all(
        self, made: list[torch.Tensor], given: list[torch.Tensor], opts: Any, results: Any
    ) -> Work:
        if made[self._rank].numel() != given[self._rank].numel():
            raise ValueError(
                f"all_to_all: rank {self._rank} has {given[self._rank].numel()} elements for "
                f"itself and room for {made[self._rank].numel()}"
            )

        def call() -> None:
            self._collectives.all_to_all(
                [memory(block) for block in given], [memory(block) for block in made]
            )

        return self._submit(call, opts, results, "all_to_all", given[0].dtype)

    def gather(
        self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any
    ) -> Work:
        own, outputs = _contiguous(input_tensors[0]), output_tensors[0] if output_tensors else []
        made = [_contiguous(output) for output in outputs]
        _same(own, outputs)

        def call() -> None:
            blocks = [memory(block) for block in made]
            self._collectives.gather(memory(own), blocks, opts.rootRank)
            for output, block in zip(outputs, made, strict=True):
                _copy_back(output, block)

        return self._submit(call, opts, outputs, "gather", own.dtype, root=opts.rootRank)

    def scatter(
        self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        (output,) = output_tensors
        given = [_contiguous(own) for own in (input_tensors[0] if input_tensors else [])]
        made = _contiguous(output)
        _same(output, given)

        def call() -> None:
            blocks = [memory(block) for block in given]
            self._collectives.scatter(memory(made), blocks, opts.rootRank)
            _copy_back(output, made)

        return self._submit(call, opts, output_tensors, "scatter", output.dtype, root=opts.rootRank)

    def barrier(self, opts: Any) -> Work:
        return self._submit(self._collectives.barrier, opts, [], "barrier", None)

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int) -> Work:
        (tensor,) = tensors
        made, work = _contiguous(tensor), Work(tensors)
        code_of(tensor.dtype)
        self._begin_message()
        self._peer(dst).send(made, tag, lambda error: self._end_message(work, error))
        return work

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int) -> Work:
        (tensor,) = tensors
        made, work = _contiguous(tensor), Work(tensors, src)
        code_of(tensor.dtype)

        def done(error: BaseException | None) -> None:
            if error is None:
                _copy_back(tensor, made)
            self._end_message(work, error)

        self._begin_message()
        self._peer(src).recv(made, tag, done)
        return work

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        raise NotImplementedError("the backend multirail has no recv from any rank: give src")

    def _begin_message(self) -> None:
        with self._submitting:
            self._mesh.waiting += 1

    def _end_message(self, work: Work, error: BaseException | None) -> None:
        with self._submitting:
            self._mesh.waiting -= 1
        work.end(error)

    def _peer(self, rank: int) -> Peer:
        with self._submitting:
            if rank not in self._peers:
                self._peers[rank] = Peer(self._mesh, rank, lambda: self._timeout_s)
            return self._peers[rank]

    def shutdown(self) -> None:
        """Ends the sessions after the operations before."""
        self._calls.put(None)
        with self._running:
            self._mesh.close()
        self._collectives.close()

    def abort(self) -> None:
        """Ends the sessions at once. Operations that wait raise, here and at the other ranks."""
        self._mesh.fail(mr.Lost(f"{self._mesh.name(self._rank)} has aborted the process group"))

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return "multirail"

    _get_backend_name = name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        """The name by which PyTorch knows the group."""
        return self._name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._description

    @property
    def supports_coalescing(self) -> bool:
        """False: PyTorch passes coalesced operations one by one or as lists."""
        return False

    def _get_backend(self, device: torch.device) -> "_Multirail":
        """The group is its own backend for tensors in the memory of the processor."""
        return self


def _check(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(
            "the backend multirail moves tensors in the memory of the processor, and this one is "
            f"on {tensor.device}: pass a copy, or use another group for this device"
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"the backend multirail moves dense tensors, and this is {tensor.layout}")


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its elements are one after another, else a copy."""
    _check(tensor)
    return tensor.detach().contiguous()


def _copy_back(tensor: torch.Tensor, made: torch.Tensor) -> None:
    if tensor.data_ptr() != made.data_ptr():
        tensor.detach().copy_(made)


def _same(own: torch.Tensor, others: list[torch.Tensor]) -> None:
    for other in others:
        if other.numel() != own.numel() or other.dtype != own.dtype:
            raise ValueError(
                f"the tensors of one operation must have one size and dtype, and these have "
                f"{own.numel()} elements of {own.dtype} and {other.numel()} of {other.dtype}"
            )


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> _Multirail:
    return _Multirail(store, rank, size, timeout)


def register() -> None:
    """Make the backend known to PyTorch. Importing this module does it."""
    if not hasattr(dist.Backend, "MULTIRAIL"):
        dist.Backend.register_backend("multirail", _create, devices=["cpu"])


register()

"""What operations of the backend return."""

import threading
from datetime import timedelta

import torch
from torch._C._distributed_c10d import Work as _Base

import multirail as mr


class Work(_Base):
    """An operation that has begun."""

    def __init__(self, tensors: list[torch.Tensor], source: int = -1) -> None:
        super().__init__()
        self._tensors = tensors
        self._source = source
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._base: torch.futures.Future[list[torch.Tensor]] | None = None
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None
        self._lock = threading.Lock()

    def end(self, error: BaseException | None = None) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._error = error
            self._over.set()
            base = self._base
        if base is not None:
            base.set_result(self._tensors)

    def _result(self, _future: object) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._tensors

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the end; raise what the operation has raised. Ctrl-C ends the call."""
        limit_s = timeout.total_seconds()
        if not self._over.wait(limit_s if limit_s > 0 else None):
            raise mr.Timeout(f"the operation is not over after {limit_s} s")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._over.is_set()

    def is_success(self) -> bool:
        return self._over.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def source_rank(self) -> int:
        return self._source

    def _source_rank(self) -> int:
        return self._source

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        with self._lock:
            if self._future is not None:
                return self._future
            # An exception of a callback is one for C++ too, which set_exception is not.
            self._base = torch.futures.Future()
            self._future = future = self._base.then(self._result)
            is_over = self._over.is_set()
        if is_over:
            self._base.set_result(self._tensors)
        return future

"""How far a copy or a broadcast is: calls a function, or draws a bar of tqdm."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Tell = Callable[[int, int | None], Any]


@contextlib.contextmanager
def shown(progress: bool | Tell | None, what: str) -> Iterator[Tell | None]:
    """What to call with the bytes that have arrived and all bytes, while the context lasts."""
    if not progress:
        yield None
    elif callable(progress):
        yield progress
    else:
        try:
            from tqdm import tqdm
        except ImportError:
            raise ImportError(
                "progress=True needs the package tqdm: pip install tqdm, or pass a function"
            ) from None
        with tqdm(desc=what, unit="B", unit_scale=True, unit_divisor=1024) as bar:

            def tell(done: int, total: int | None) -> None:
                bar.total = total
                bar.n = done
                bar.refresh()

            yield tell

"""Prefetching: a thread prepares the next items while the caller works on the last one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Item(Generic[T]):
    value: T


@dataclass(frozen=True, kw_only=True)
class _End:
    error: BaseException | None = None


def prefetch(items: Iterator[T], *, depth: int) -> Iterator[T]:
    """The same items in the same order, up to `depth` of them prepared ahead by a thread.

    The thread starts with the first item asked for and ends with the last one, with an error, or when the caller
    stops early: then it ends before this generator does. An error of `items` is raised where its item was due.

    Example:
        >>> list(prefetch(iter("abc"), depth=2))
        ['a', 'b', 'c']
    """
    ready: queue.Queue[_Item[T] | _End] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_produce, args=(items, ready, stopped), name="fielddep-prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(found := ready.get(), _End):
            yield found.value
        if found.error is not None:
            raise found.error
    finally:
        stopped.set()
        _empty(ready)  # a thread that waits for a free place must be let go before it can end
        thread.join()


def _produce(items: Iterator[T], ready: queue.Queue[_Item[T] | _End], stopped: threading.Event) -> None:
    end = _End()
    try:
        for value in items:
            ready.put(_Item(value=value))
            if stopped.is_set():
                return
    except BaseException as error:  # whatever it is, the caller must hear of it
        end = _End(error=error)
    ready.put(end)


def _empty(ready: queue.Queue[_Item[T] | _End]) -> None:
    while True:
        try:
            ready.get_nowait()
        except queue.Empty:
            return

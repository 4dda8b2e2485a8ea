"""Prefetching: same items, same order, errors where they are due, and a thread that always ends."""

from __future__ import annotations

import threading
import time

import pytest

from fielddep.tables.row_stream import prefetch


def alive() -> int:
    return sum(thread.name.startswith("fielddep-prefetch") for thread in threading.enumerate())


@pytest.mark.parametrize("depth", [1, 3, 100])
@pytest.mark.parametrize("n_items", [0, 1, 50])
def test_same_items_in_the_same_order(depth, n_items):
    assert list(prefetch(iter(range(n_items)), depth=depth)) == list(range(n_items))
    assert alive() == 0


def test_no_more_than_depth_items_ahead():
    made: list[int] = []

    def items():
        for number in range(100):
            made.append(number)
            yield number

    ahead = prefetch(items(), depth=4)
    assert made == []
    assert next(ahead) == 0
    deadline = time.monotonic() + 5
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert len(made) == 5, "one taken, four ahead"
    ahead.close()
    assert alive() == 0
    assert len(made) == 5


def test_the_next_item_is_made_while_the_caller_works():
    running = threading.Event()

    def items():
        yield 0
        running.set()
        yield 1

    ahead = prefetch(items(), depth=1)
    assert next(ahead) == 0
    assert running.wait(timeout=5)
    assert list(ahead) == [1]


def test_an_error_is_raised_where_its_item_was_due():
    def items():
        yield from "ab"
        raise RuntimeError("no c")

    ahead = prefetch(items(), depth=10)
    assert [next(ahead), next(ahead)] == ["a", "b"]
    with pytest.raises(RuntimeError, match="no c"):
        next(ahead)
    assert alive() == 0


def test_the_callers_own_error_ends_the_thread():
    def work():
        for item in prefetch(iter(range(1000)), depth=2):
            if item == 5:
                raise KeyError

    with pytest.raises(KeyError):
        work()
    assert alive() == 0

"""What tests ask of a message: the facts in it, not its wording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

MAX_SENTENCES = 4


def _plain(text: str) -> str:
    """Text on one line, in small letters, numbers without separators of thousands."""
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", " ".join(text.split()).casefold())


def states(text: str, *facts: object) -> bool:
    """Whether every fact (a column, a row, a number, a file, a setting) stands in the text as whole words.

    Case, line breaks and the separators of thousands make no difference. Fails with the facts that are absent.
    """
    plain = _plain(text)
    # "row 7" is neither in "row 71" nor in "row 7.5".
    pattern = r"(?<!\w)(?<!\d\.){}(?!\w)(?!\.\d)"
    absent = [fact for fact in facts if not re.search(pattern.format(re.escape(_plain(str(fact)))), plain)]
    assert not absent, f"{absent} not in: {text}"
    return True


@contextmanager
def raises(error: type[Exception], *facts: object) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Like `pytest.raises`, for an error of a few sentences that states these facts."""
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    assert len(re.findall(r"[.!?](?=\s|$)", message)) <= MAX_SENTENCES, f"too long: {message}"
    states(message, *facts)

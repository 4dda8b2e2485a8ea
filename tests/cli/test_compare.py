"""`fielddep compare --rows`: which rows searches use."""

from __future__ import annotations

import pytest

from fielddep.cli.compare import parse_rows
from fielddep.errors import UserError
from tests.helpers import raises


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (None, (None, {})),
        ("", (None, {})),
        ("500", (500, {})),
        ("fm=20", (None, {"fm": 20})),
        (" fm = 20, 500 ,lr=3", (500, {"fm": 20, "lr": 3})),
    ],
)
def test_rows_are_those_of_all_models_or_of_one(text: str | None, rows: tuple[int | None, dict[str, int]]) -> None:
    assert parse_rows(text, {"fm", "lr"}) == rows


@pytest.mark.parametrize("text", ["many", "-5", "1.5", "fm", "fm=", "=5", "mdl=5", "fm=lr=5", "500,fm=x"])
def test_other_rows_are_refused(text: str) -> None:
    with raises(UserError, "--rows", "MODEL=N", "fm", "lr", f"'{text.split(',')[-1]}'"):
        parse_rows(text, {"fm", "lr"})

"""Decode: typed values of plain ones; what does not fit is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fielddep.config.decode import decode, parse_assignment
from fielddep.config.settings import Config
from fielddep.errors import ConfigError
from tests.helpers import raises


@dataclass(frozen=True, kw_only=True)
class Point:
    x: float
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    points: tuple[Point, ...]
    weights: dict[str, float]
    style: Literal["solid", "dashed"] = "solid"


def test_nested_values() -> None:
    plain = {"points": [{"x": 1}, {"x": 2.5, "label": "end"}], "weights": {"a": 1}}
    assert decode(plain, Line, "line") == Line(points=(Point(x=1.0), Point(x=2.5, label="end")), weights={"a": 1.0})


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"wights": {}}, ["line", "'wights'", "did you mean 'weights'"]),
        ({"points": [{"x": 1, "lable": "end"}]}, ["line.points", "'lable'", "did you mean 'label'"]),
        ({"points": [{"label": "end"}]}, ["line", "x"]),
        ({"points": 3}, ["line", "list"]),
        ({"points": [{"x": "far"}]}, ["line", "number"]),
        ({"style": "dotted"}, ["line.style", "'dotted'", "did you mean 'dashed'"]),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], facts: list[str]) -> None:
    with raises(ConfigError, *facts):
        decode({"points": [], "weights": {}, **change}, Line, "line")


def test_an_entry_is_named() -> None:
    with raises(ConfigError, "metrics.test.auc", "number", "'high'"):
        decode({"test": {"auc": "high"}}, dict[str, dict[str, float]], "metrics")


@pytest.mark.parametrize("path", ["data.exclude", "data.fields", "data.missing_values"])
def test_a_text_is_a_list_of_one(path: str) -> None:
    config = Config().replace(dict([parse_assignment(f"{path}=Name")]))
    assert config == Config().replace({path: ["Name"]})
    with raises(ConfigError, path, 5):
        Config().replace({path: 5})


def test_a_word_of_a_setting_with_words_is_no_list() -> None:
    assert Config().replace({"data.crosses": "none"}).data.crosses == "none"
    with raises(ConfigError, "data.crosses", "'month'"):
        Config().replace({"data.crosses": "month"})

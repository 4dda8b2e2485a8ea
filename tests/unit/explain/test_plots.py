"""Drawing: an image is written, whole, or the extra to install is named."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.errors import MissingExtraError, UserError
from fielddep.explain.dependencies import Explanation, FieldDependencies
from fielddep.explain.plots import draw_dependencies, draw_explanation

MODEL = FieldDependencies(
    fields=("user", "a very long field name indeed", "item"), matrix_FF=np.arange(9.0).reshape(3, 3)
)
EXPLANATION = Explanation(
    fields=MODEL.fields,
    values=pl.DataFrame({"user": ["ann", "bob"], MODEL.fields[1]: ["$x_{$", "é" * 100], "item": ["<missing>", "3"]}),
    w_RSFF=np.random.default_rng(0).normal(size=(2, 2, 3, 3)),
    mu_RSF=np.full((2, 2, 3), 1.0),
    loss_RSF=np.zeros((2, 2, 3)),
    sparsity=3.0,
)


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_heat_maps_side_by_side(tmp_path: Path):
    pytest.importorskip("matplotlib")
    draw_dependencies([("one", MODEL, MODEL.fields)], tmp_path / "one.png")
    draw_explanation(MODEL, EXPLANATION, tmp_path / "two.png", row=1)
    (one, height), (two, _) = png_size(tmp_path / "one.png"), png_size(tmp_path / "two.png")
    assert one > 300 and height > 300
    assert two > 1.5 * one


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_suffix_says_the_format(tmp_path: Path, suffix, start):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"map.{suffix}"
    draw_dependencies([("one", MODEL, MODEL.fields)], path)
    assert path.read_bytes().startswith(start)


def test_strange_texts_are_drawn_as_they_are(tmp_path: Path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "row.png"
    draw_explanation(MODEL, EXPLANATION, path, row=0)
    odd = FieldDependencies(fields=("$\\frac{$", "b$"), matrix_FF=-np.eye(2))
    draw_dependencies([("$100 $ and _{$", odd, odd.fields)], path)
    assert min(png_size(path)) > 100


def test_an_unknown_format_is_a_users_error(tmp_path: Path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match=r"cannot draw .*map\.xyz: expected an image file such as \.png"):
        draw_dependencies([("one", MODEL, MODEL.fields)], tmp_path / "map.xyz")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fielddep\[plot\]'"):
        draw_dependencies([("one", MODEL, MODEL.fields)], tmp_path / "map.png")
    assert list(tmp_path.iterdir()) == []

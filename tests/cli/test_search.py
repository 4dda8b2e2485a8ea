"""`fielddep search`: which seed it uses, and how to use the settings that it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fielddep.cli import main
from fielddep.cli.search import usage_of
from fielddep.errors import UserError
from fielddep.experiments import search as search_module
from tests.conftest import quick_config, small_frame
from tests.helpers import states
from tests.stores import write_store


@pytest.mark.parametrize(
    ("words", "seed"),
    [
        ([], 0),
        (["--seed", "3"], 3),
        (["--set", "train.seed=5"], 5),
        (["--seed", "3", "--set", "train.seed=5"], 3),
    ],
)
def test_the_seed_is_that_of_the_option_or_of_the_settings(
    words: list[str], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def search(*_: Any, seed: int, **__: Any) -> None:
        seeds.append(seed)
        raise UserError("no trials here")

    monkeypatch.setattr(search_module, "search", search)
    write_store(tmp_path / "store", small_frame(), quick_config(data__crosses="none"))
    out = tmp_path / "out"
    assert main(["search", str(tmp_path / "store"), "--model", "lr", "--out", str(out), *words]) == 2
    assert seeds == [seed]
    assert not out.exists()


def test_what_can_be_done_with_the_best_settings() -> None:
    assert states(usage_of("fm", Path("out/best.toml")), "fielddep fit", "--config out/best.toml")
    usage = usage_of("lightgbm", Path("out/best.toml"))
    assert states(usage, "out/best.toml", "CONFIGS/lightgbm.toml", "fielddep compare", "--models mdl,lightgbm")

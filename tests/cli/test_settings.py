"""`fielddep settings`: of MDL, of another model, of trees."""

from __future__ import annotations

import pytest

from fielddep.cli import main


@pytest.mark.parametrize(
    ("words", "own", "others"),
    [
        ([], "model.n_inner_steps", "model.num_leaves"),
        (["--model", "fm"], "model.d_embed", "model.n_inner_steps"),
        (["--model", "lightgbm"], "model.num_leaves", "model.n_inner_steps"),
    ],
)
def test_the_settings_are_those_of_the_model(
    words: list[str], own: str, others: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["settings", *words]) == 0
    printed = capsys.readouterr().out
    assert own in printed
    assert others not in printed
    assert "train.seed" in printed

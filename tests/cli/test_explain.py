"""What `fielddep explain` prints if there is more than fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fielddep.cli.explain import fitting_names, print_model, print_overview, print_rows
from fielddep.explain.dependencies import FieldDependencies
from fielddep.explain.evidence import EvidenceRanking, RowEvidence, SeenValues
from fielddep.explain.hiding import REFINEMENT, Effects
from fielddep.explain.importance import FieldImportance
from fielddep.explain.overview import RowsOverview, TableOverview
from tests.helpers import states

OUT = Path("why")


def fields(n_fields: int) -> tuple[str, ...]:
    return tuple(f"field {f}" for f in range(n_fields))


def importance(*names: str) -> FieldImportance:
    falling = np.linspace(1.0, 0.5, len(names))[:, np.newaxis]
    worse = dict.fromkeys(("logloss", "auc"), falling)
    return FieldImportance(method="hiding", names=names, n_rows=9, base=dict.fromkeys(worse, 0.5), worse_FP=worse)


def table_of(n_fields: int) -> TableOverview:
    return TableOverview(
        n_rows=9,
        dependencies=None,
        groups=None,
        importance=importance(*fields(n_fields)),
        hiding=importance(*fields(n_fields), REFINEMENT),
        calibration=None,
        scores=None,
    )


def rows_of(n_rows: int, n_fields: int) -> RowsOverview:
    effects = Effects(
        names=fields(n_fields),
        values=pl.DataFrame(dict.fromkeys(fields(n_fields), ["red"] * n_rows)),
        classes=(),
        prediction_R=np.zeros(n_rows),
        without_RF=np.zeros((n_rows, n_fields)),
        logit_R=None,
        logit_without_RF=None,
    )
    return RowsOverview(numbers=tuple(range(n_rows)), effects=effects, refinement=None, explanation=None)


@pytest.mark.parametrize("n_fields", [3, 20, 21, 40])
def test_refinement_is_printed_however_many_fields_there_are(n_fields: int, capsys: pytest.CaptureFixture[str]) -> None:
    print_overview(table_of(n_fields))
    captured = capsys.readouterr()
    names = [line.strip().split("  ")[0] for line in captured.out.splitlines()]
    assert [name for name in names if name.startswith(("field ", "("))] == [*fields(min(n_fields, 20)), REFINEMENT]
    assert "logloss, shuffled" in captured.out and "AUC, hidden" in captured.out
    said = {21: "1 more field", 40: "20 more fields"}
    assert states(captured.err, said[n_fields], "--out") if n_fields in said else captured.err == ""


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, ["colour", "day", "departure airport"]),
        (57, ["colour", "day", "departure airport"]),
        (50, ["colour", "day", "depar…port"]),
        (44, ["co…ur", "day", "de…rt"]),
        (43, []),
    ],
)
def test_names_of_columns_are_as_long_as_the_width_allows(
    width: int, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("colour", "day", "departure airport")
    assert fitting_names(names, width) == expected
    monkeypatch.setattr("fielddep.cli.console.PIPE_WIDTH", width)
    print_model(FieldDependencies(fields=names, matrix_FF=np.eye(3)[::-1].copy()))
    _, *matrix = capsys.readouterr().out.split("W(0), largest")
    assert len(matrix) == bool(expected)
    for printed in matrix:
        assert all(name in printed for name in expected)
        assert len([line for line in printed.splitlines() if line.strip()]) == 6  # nothing is folded


def test_fields_that_are_not_printed_are_in_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    print_overview(table_of(30), OUT)
    assert states(capsys.readouterr().err, "10 more fields", OUT / "importance.csv", OUT / "hiding.csv")


def test_rows_and_their_fields_that_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(rows_of(7, 3))
    assert states(capsys.readouterr().err, "2 more rows", "--out")
    print_rows(rows_of(1, 22), OUT)
    assert states(capsys.readouterr().err, "2 more fields", OUT / "effects.csv")


def test_evidence_of_rows_follows_their_effects(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"n": 4.0, "mean": 0.75, "base": 0.5, "outcome": "late", "values": ("[bold]x[/bold]",)}
    seen = [SeenValues(fields=(name,), effect=effect, **values) for name, effect in (("a", 0.25), ("b", -0.125))]
    evidence = RowEvidence(classes=(1, 1), prediction_R=np.zeros(2), rows=(tuple(seen), ()))
    print_rows(replace(rows_of(2, 3), evidence=evidence))
    first, second = capsys.readouterr().out.split("row 1: predicted")
    lines = [line for line in first.splitlines() if ": seen" in line]
    assert [(states(line, str(one)), line.split()[-1]) for line, one in zip(lines, seen, strict=True)] == [
        (True, "+0.2500"),
        (True, "-0.1250"),
    ]
    assert first.index("field 2") < first.index(": seen")
    assert "same values" not in second
    print_rows(rows_of(2, 3))
    assert "same values" not in capsys.readouterr().out


def test_combinations_that_are_not_printed_are_in_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple((f"field {n}", "other") for n in range(12))
    ranking = EvidenceRanking(
        combinations=names, effect_K=np.linspace(0.2, 0.1, 12), seen_K=np.full(12, 0.5), n_rows=2000
    )
    print_overview(replace(table_of(3), evidence=ranking), OUT)
    shown = capsys.readouterr()
    assert states(shown.out, "2,000 rows", "field 0, other", "0.2000", "50 %")
    assert "field 9, other" in shown.out and "field 10, other" not in shown.out
    assert states(shown.err, "2 more combinations", OUT / "evidence_ranking.csv")

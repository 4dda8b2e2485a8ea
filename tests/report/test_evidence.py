"""Evidence in reports: its numbers are those of `explain`, and its section shows them as text."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.run import REPORT_NUMBERS
from fielddep.encoding.rows import EncodedRows
from fielddep.explain.evidence import combination_name, rank_evidence, row_evidence
from fielddep.report.build import report_training
from fielddep.report.facts import Report, SeenFacts
from fielddep.report.measured import MAX_RANKED, MAX_SEEN
from fielddep.report.page import render_page
from tests.reports import SCRIPT, make_run

TITLE = "What rows with the same values did"
TASKS = ("binary", "multiclass", "regression")
Made = tuple[Report, Bundle, EncodedRows]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    found = {}
    for task in TASKS:
        run = make_run(tmp_path_factory.mktemp("evidence") / task, task=task, model__d_embed=4)
        report_training(run)
        report = Report.from_json(json.loads((run.folder / REPORT_NUMBERS).read_text("utf-8")))
        assert run.trained is not None
        found[task] = (report, Bundle.load(run.bundle), run.trained.prepared.parts["test"].rows())
    return found


def section_of(report: Report) -> str:
    found = re.search(r'<section id="evidence">(.*?)</section>', render_page(report, ""), re.S)
    return "" if found is None else found[1]


@pytest.mark.parametrize("task", TASKS)
def test_numbers_are_those_of_explain(made: dict[str, Made], task: str) -> None:
    report, bundle, rows = made[task]
    ranking, facts = rank_evidence(bundle, rows), report.measured.evidence
    assert facts is not None
    assert (facts.n_rows, facts.n_combinations) == (40, len(ranking.combinations))
    shown = dict(facts.combinations)
    assert len(shown) == min(MAX_RANKED, facts.n_combinations)
    names = list(map(combination_name, ranking.combinations))
    expected = dict(zip(names, ranking.effect_K.tolist(), strict=True))
    assert shown == pytest.approx({name: expected[name] for name in shown}, rel=1e-4, abs=1e-7)
    examples = report.measured.examples
    found = row_evidence(bundle, rows.take(np.array([row.number for row in examples])), n_strongest=MAX_SEEN)
    for row, seen in zip(examples, found.rows, strict=True):
        assert {one.text for one in row.seen} == {str(one) for one in seen}
        np.testing.assert_allclose([one.effect for one in row.seen], [one.effect for one in seen], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_sentences_are_shown_with_bars_for_and_against(made: dict[str, Made], task: str) -> None:
    report = made[task][0]
    text = section_of(report)
    assert TITLE in text
    seen = [one for row in report.measured.examples for one in row.seen]
    for one in seen:
        assert html.escape(one.text) in text
    assert text.count('class="bar"') == len(seen) > 5
    assert text.count('class="down"') == sum(one.effect < 0 for one in seen)
    assert ("percentage points" in text) == (task != "regression")


def test_values_are_escaped(made: dict[str, Made]) -> None:
    report = made["binary"][0]
    texts = [one.text for row in report.measured.examples for one in row.seen]
    assert any(SCRIPT in text for text in texts)  # the name of a field
    page = render_page(report, "")
    assert SCRIPT not in page and "<b>green" not in page


def test_rows_of_which_nothing_was_seen_are_left_out(made: dict[str, Made]) -> None:
    report = made["binary"][0]
    first, *others = report.measured.examples
    rows = [dataclasses.replace(first, seen=(SeenFacts(text="a = x: seen once", effect=0.0),))]
    rows += [dataclasses.replace(row, seen=()) for row in others]
    text = section_of(dataclasses.replace(report, measured=dataclasses.replace(report.measured, examples=tuple(rows))))
    assert text.count("<h3>") == 1
    none = dataclasses.replace(report.measured, examples=tuple(dataclasses.replace(r, seen=()) for r in rows))
    assert "<h3>" not in section_of(dataclasses.replace(report, measured=none))


def test_without_evidence_there_is_no_section(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", model__d_embed=4, data__evidence="none")
    report_training(run)
    report = Report.from_json(json.loads((run.folder / REPORT_NUMBERS).read_text("utf-8")))
    assert report.measured.evidence is None
    assert all(row.seen == () for row in report.measured.examples)
    assert TITLE not in render_page(report, "")


def test_a_report_from_before_has_no_evidence(made: dict[str, Made]) -> None:
    numbers = made["binary"][0].to_json()
    del numbers["measured"]["evidence"]
    for row in numbers["measured"]["examples"]:
        del row["seen"]
    assert TITLE not in render_page(Report.from_json(json.loads(json.dumps(numbers))), "")

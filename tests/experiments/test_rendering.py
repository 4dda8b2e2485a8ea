"""Tables as text: the rules of numbers, and the three formats character by character."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Callable

import pytest

from fielddep.errors import UserError
from fielddep.experiments.rendering import (
    Cell,
    Grid,
    decimals,
    latex_text,
    markdown_text,
    p_value,
    render,
    scientific,
    with_spread,
)
from fielddep.experiments.results import RunResult
from fielddep.experiments.significance import DunnettRow, DunnettTable, Summary, Welch
from fielddep.experiments.tables import ComparisonTable
from fielddep.wording import fixed
from tests.experiments.runs import runs


def comparison() -> ComparisonTable:
    """A beaten model, one that failed, one with a failed run, and the control."""
    costs = {"n_parameters": 4_412_345, "train_seconds": 72.0, "rows_per_s": 12345.6, "peak_mb": 812.4}
    mdl = [dataclasses.replace(run, **costs) for run in runs("mdl", [0.80, 0.82, 0.81])]
    return ComparisonTable.of(
        runs("wide_deep", [0.70, 0.72, 0.71])
        + runs("saint", ["50 % of\nmemory | gone"])
        + runs("fm", [0.80, 0.79, "NaN"])
        + mdl
    )


MARKDOWN = r"""| model | AUC | parameters | training time | rows/s | peak memory (MB) |
| --- | ---: | ---: | ---: | ---: | ---: |
| wide_deep | 0.710 ± 0.010\* | - | - | - | - |
| saint | failed | - | - | - | - |
| fm | 0.795 ± 0.007 | - | - | - | - |
| mdl | **0.810 ± 0.010** | 4.4M | 1 min 12 s | 12,346 | 812 |

saint: 1 of 1 runs failed (seed 0): 50 % of memory \| gone

fm: 1 of 3 runs failed (seed 2): NaN
"""

LATEX = r"""\begin{table}[ht]
\centering
\begin{tabular}{lrrrrr}
\toprule
model & AUC & parameters & training time & rows/s & peak memory (MB) \\
\midrule
wide\_deep & 0.710 $\pm$ 0.010$^{*}$ & - & - & - & - \\
saint & failed & - & - & - & - \\
fm & 0.795 $\pm$ 0.007 & - & - & - & - \\
mdl & \textbf{0.810 $\pm$ 0.010} & 4.4M & 1 min 12 s & 12,346 & 812 \\
\bottomrule
\end{tabular}
\par{\footnotesize saint: 1 of 1 runs failed (seed 0): 50 \% of memory \textbar{} gone\par}
\par{\footnotesize fm: 1 of 3 runs failed (seed 2): NaN\par}
\end{table}
"""

DUNNETT = DunnettTable(
    metric="auc",
    better="higher",
    control="mdl",
    rows=(
        DunnettRow(
            model="fm",
            estimate=-2.632e-3,
            standard_error=4.413e-4,
            t=-5.964,
            p=1.828e-6,
            welch=Welch(t=-8.5, df=6.26, p=1.5e-5, p_holm=3e-5),
        ),
        DunnettRow(model="wide_deep", estimate=-5.417e-2, standard_error=4.413e-4, t=-122.8, p=3e-57),
    ),
    df=12,
    anova_f=1234.5,
    anova_p=0.0,
    dataset="frappe",
)

DUNNETT_MARKDOWN = r"""| comparison | Estimate | Std. Error | t value | Pr(\<t) | Welch t | Welch df | Welch p |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| fm minus mdl | -2.632E-03 | 4.413E-04 | -5.964E+00 | 1.828E-06 | -8.500E+00 | 6.3 | 3.000E-05 |
| wide_deep minus mdl | -5.417E-02 | 4.413E-04 | -1.228E+02 | \<1E-16 | - | - | - |

One-way ANOVA: F(2, 12) = 1234, p \<1E-16.
"""

DUNNETT_LATEX = r"""\begin{table}[ht]
\centering
\begin{tabular}{lrrrrrrr}
\toprule
comparison & Estimate & Std. Error & t value & Pr($<$t) & Welch t & Welch df & Welch p \\
\midrule
fm minus mdl & -2.632E-03 & 4.413E-04 & -5.964E+00 & 1.828E-06 & -8.500E+00 & 6.3 & 3.000E-05 \\
wide\_deep minus mdl & -5.417E-02 & 4.413E-04 & -1.228E+02 & $<$1E-16 & - & - & - \\
\bottomrule
\end{tabular}
\par{\footnotesize One-way ANOVA: F(2, 12) = 1234, p $<$1E-16.\par}
\end{table}
"""


@pytest.mark.parametrize(
    ("table", "form", "text"),
    [
        (comparison(), "markdown", MARKDOWN),
        (comparison(), "latex", LATEX),
        (DUNNETT, "markdown", DUNNETT_MARKDOWN),
        (DUNNETT, "latex", DUNNETT_LATEX),
    ],
    ids=["comparison markdown", "comparison latex", "dunnett markdown", "dunnett latex"],
)
def test_text(table: ComparisonTable | DunnettTable, form: str, text: str) -> None:
    """All but the caption, which says what the table shows, and the note on how to read its tests."""
    facts = ("toy", "test rows", "2 to 3 seeds", "mdl", "0.05") if table is not DUNNETT else ("AUC", "frappe")
    caption, body = split_caption(render(table, form), form)
    lines = body.splitlines(keepends=True)
    assert "".join(line for line in lines if "Welch's test" not in line).rstrip("\n") + "\n" == text
    assert any("Holm" in line for line in lines) == (table is DUNNETT)
    assert all(fact in caption for fact in (*facts, "Dunnett"))


def split_caption(text: str, form: str) -> tuple[str, str]:
    """The caption of a table, and all else of it."""
    if form == "markdown":
        caption, _, body = text.partition("\n\n")
        return caption, body
    [caption] = re.findall(r"^\\caption\{.*\}\n", text, re.MULTILINE)
    return caption, text.replace(caption, "")


def test_comparison_csv_has_every_digit() -> None:
    table = comparison()
    lines = {line["model"]: line for line in csv.DictReader(io.StringIO(render(table, "csv")))}
    assert list(lines) == ["wide_deep", "saint", "fm", "mdl"]
    fm, saint, mdl = lines["fm"], lines["saint"], lines["mdl"]
    assert (fm["dataset"], fm["part"], fm["finished"], fm["runs"], fm["failure"]) == ("toy", "test", "2", "3", "NaN")
    assert float(fm["auc_mean"]) == table.rows[2].metrics["auc"].mean
    assert float(fm["auc_sd"]) == table.rows[2].metrics["auc"].sd
    assert float(fm["auc_p"]) == table.p("auc", "fm")
    assert (saint["auc_mean"], saint["auc_sd"], saint["auc_p"], saint["failure"]) == (
        *("", "", ""),
        "50 % of\nmemory | gone",
    )
    assert (mdl["auc_p"], mdl["n_parameters_mean"], mdl["rows_per_s_mean"]) == ("", "4412345.0", "12345.6")


def test_dunnett_csv() -> None:
    assert render(DUNNETT, "csv").splitlines() == [
        "dataset,metric,model,control,estimate,standard_error,t,df,p,anova_f,anova_p,"
        "welch_t,welch_df,welch_p,welch_p_holm",
        "frappe,auc,fm,mdl,-0.002632,0.0004413,-5.964,12,1.828e-06,1234.5,0.0,-8.5,6.26,1.5e-05,3e-05",
        "frappe,auc,wide_deep,mdl,-0.05417,0.0004413,-122.8,12,3e-57,1234.5,0.0,,,,",
    ]


def test_losses_are_tested_upwards_and_absent_tests_are_dashes() -> None:
    table = DunnettTable(
        metric="mse", better="lower", control="mdl", rows=(DunnettRow(model="lr", estimate=0.5),), df=0, notes=("none",)
    )
    assert render(table, "markdown").splitlines()[2:] == [
        "| comparison | Estimate | Std. Error | t value | Pr(>t) | Welch t | Welch df | Welch p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| lr minus mdl | 5.000E-01 | - | - | - | - | - | - |",
        "",
        "none",
    ]


@pytest.mark.parametrize(
    ("results", "caption", "row"),
    [
        (runs("mdl", [0.8125]), "one seed; best", "| mdl | **0.8125** |"),
        (runs("mdl", ["gone"]), "one seed; no figures", "| mdl | failed |"),
        (
            [RunResult(dataset="toy", model="mdl", seed=0, predict_seconds=0.31)],
            "one seed; no figures",
            "| mdl | 310 ms |",
        ),
    ],
    ids=["one seed", "all failed", "costs only"],
)
def test_tables_with_little_in_them(results: list[RunResult], caption: str, row: str) -> None:
    lines = render(ComparisonTable.of(results), "markdown").splitlines()
    assert caption in lines[0]
    assert row in lines


def test_an_unknown_form() -> None:
    with pytest.raises(UserError, match=r"markdown.*csv.*latex.*'html'"):
        render(DUNNETT, "html")


@pytest.mark.parametrize("table", [comparison(), DUNNETT], ids=["comparison", "dunnett"])
def test_latex_is_balanced_and_every_row_has_all_columns(table: ComparisonTable | DunnettTable) -> None:
    text = render(table, "latex")
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1]
    bare = re.sub(r"\\[\\{}$&%#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    [columns] = re.findall(r"\\begin\{tabular\}\{(l+r+)\}", text)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") + 1 for line in rows} == {len(columns)}


HOSTILE = r"a\b&c%d$e#f_g{h}i~j^k<l>m|n±o"


def test_hostile_names() -> None:
    assert latex_text(HOSTILE) == (
        r"a\textbackslash{}b\&c\%d\$e\#f\_g\{h\}i\textasciitilde{}j\textasciicircum{}k$<$l$>$m\textbar{}n$\pm$o"
    )
    assert markdown_text(r"a\b|c*d<e`f[g]" + "\n h_i _j __k__") == r"a\\b\|c\*d\<e\`f\[g\] h_i \_j \_\_k\_\_"
    grid = Grid(caption="c", header=("n", "v"), rows=((Cell(text="x|y"), Cell(text="1", bold=True, star=True)),))
    assert r"| x\|y | **1**\* |" in grid.to_markdown()
    assert r"x\textbar{}y & \textbf{1}$^{*}$ \\" in grid.to_latex()


@pytest.mark.parametrize(
    ("summaries", "expected"),
    [
        ([(0.98, 0.0008), (0.97, 0.0009)], 5),
        ([(0.98, 0.0123), (0.97, 0.0), (0.9, 0.02), (0.9, 0.03)], 3),
        ([(0.98, 0.00999999)], 3),
        ([(0.98, 0.0)], 4),
        ([(0.9996, 0.0)], 4),
        ([(0.99996, 0.0)], 3),
        ([(12.5, 0.0)], 2),
        ([(1234567.0, 1200.0)], 0),
        ([(0.98, 1e-12)], 8),
        ([(0.0, 0.0)], 3),
        ([], 3),
    ],
)
def test_decimals_follow_from_the_spread(summaries: list[tuple[float, float]], expected: int) -> None:
    assert decimals([Summary(mean=mean, sd=sd, n=5) for mean, sd in summaries]) == expected


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (scientific, 0.0, "0.000E+00"),
        (p_value, 1e-16, "1.000E-16"),
        (p_value, 9.9e-17, "<1E-16"),
        (p_value, None, "-"),
    ],
)
def test_tests_as_text(write: Callable[[float | None], str], value: float | None, text: str) -> None:
    assert write(value) == text


@pytest.mark.parametrize(
    ("summary", "show_zero", "text"),
    [
        (Summary(mean=1234.5, sd=12.0, n=5), False, "1,234.50 ± 12.00"),
        (Summary(mean=2.0, sd=0.0, n=5), False, "2.00"),
        (Summary(mean=2.0, sd=0.0, n=5), True, "2.00 ± 0.00"),
        (Summary(mean=2.0, sd=0.0, n=1), True, "2.00"),
    ],
)
def test_spread_is_shown_where_there_is_one(summary: Summary, show_zero: bool, text: str) -> None:
    assert with_spread(summary, lambda value: fixed(value, 2), show_zero=show_zero) == text

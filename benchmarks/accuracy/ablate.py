"""Run the paper's ablations: `fielddep ablate` on Frappe, the ML-Tag part and flights, with the tuned settings of MDL.

    python benchmarks/accuracy/ablate.py --scratch DIR                  these tables, all questions of the paper
    python benchmarks/accuracy/ablate.py frappe --scratch DIR --what steps
    python benchmarks/accuracy/ablate.py frappe ml-rating flights diabetes130 ml-tag-part --scratch DIR --what parts
    python benchmarks/accuracy/ablate.py --scratch DIR --gather         only gather what is done

DIR keeps stores and runs, so an interrupted benchmark resumes where it stopped. Settings come from
`configs/mdl-TABLE.toml`. What is gathered here:

    ablation/TABLE/     figures (WHAT.csv), tables (WHAT.md, WHAT.tex), pictures and verdicts of a table
    ablation/README.md  every claim of the paper with its verdict on every table; text after the mark is kept
    ablation/machine.json
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import polars as pl

import compare
import tables

HERE = Path(__file__).parent
ABLATION = HERE / "ablation"
TABLES = ("frappe", "ml-tag-part", "flights")
GATHERED = ("*.csv", "*.md", "*.tex", "*.png")
CONFIGS = "ablation-configs"
MARK = "<!-- what stands above is made by benchmarks/accuracy/ablate.py -->"


def settings_folder(name: str, scratch: Path, configs: Path = HERE / "configs") -> Path:
    """The tuned settings of a table, as `fielddep ablate --configs` expects them."""
    folder = scratch / CONFIGS / name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(configs / f"mdl-{name}.toml", folder / "mdl.toml")
    return folder


def command(name: str, given: argparse.Namespace) -> list[str]:
    """The call of `fielddep ablate` for one table."""
    options = {
        "--what": given.what,
        "--seeds": given.seeds,
        "--configs": given.scratch / CONFIGS / name,
        "--threads": given.threads,
        "--jobs": given.jobs,
        "--raw": tables.data_home(),
        "--out": given.scratch / f"ablation-{name}",
    }
    words = [word for option, value in options.items() if value is not None for word in (option, str(value))]
    words += [word for setting in compare.BENCHES[name].settings for word in ("--set", setting)]
    return [sys.executable, "-m", "fielddep", "ablate", name, "--no-search", *words]


def gather(name: str, done: Path, here: Path = ABLATION) -> None:
    """Copy figures, tables, pictures, verdicts and MDL's settings."""
    target = here / name
    target.mkdir(parents=True, exist_ok=True)
    for pattern in GATHERED:
        for file in done.glob(pattern):
            shutil.copyfile(file, target / file.name)
    for figures in target.glob("*.csv"):
        table = pl.read_csv(figures, infer_schema_length=None)
        if "value" in table.columns:  # all digits of a float64 would double the size of the repository's copy
            table.with_columns(pl.col("value").round_sig_figs(7)).write_csv(figures)
    shutil.copyfile(done / "configs" / "mdl.toml", target / "mdl.toml")


def write_readme(here: Path = ABLATION) -> None:
    """Every claim with its verdict on every table; text after the mark is kept."""
    claims = pl.concat([pl.read_csv(file) for file in sorted(here.glob("*/*-claims.csv"))])
    names = [name for name in TABLES if name in claims["dataset"].to_list()]
    lines = ["| claim | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for (claim,), part in claims.group_by(["claim"], maintain_order=True):
        verdicts = dict(part.select("dataset", "verdict").iter_rows())
        lines.append(f"| {claim} | " + " | ".join(verdicts.get(name, "") for name in names) + " |")
    pages = [
        f"- {name}: " + ", ".join(f"[{file.stem}]({name}/{file.name})" for file in sorted((here / name).glob("*.md")))
        for name in names
    ]
    path = here / "README.md"
    _, mark, kept = path.read_text("utf-8").partition(MARK) if path.exists() else ("", "", "")
    text = "\n".join(["# Ablations", "", *lines, "", *pages, "", MARK])
    path.write_text(text + (kept if mark else "\n"), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE")
    parser.add_argument("--scratch", type=Path, required=True, help="folder of stores and runs")
    parser.add_argument("--what", default="all")
    parser.add_argument("--seeds", type=int, help="instead of 5 for the variants and 3 for the curves")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--gather", action="store_true", help="run nothing, gather what is done")
    given = parser.parse_args()
    for name in given.tables:
        if name not in compare.BENCHES:
            parser.error(f"expected tables among {', '.join(compare.BENCHES)}, given {name}")
        if not given.gather:
            settings_folder(name, given.scratch)
            compare.run(command(name, given))
            ABLATION.mkdir(exist_ok=True)
            compare.write_machine(ABLATION, given.threads)
        done = given.scratch / f"ablation-{name}"
        if any(done.glob("*-claims.csv")):
            gather(name, done)
            write_readme()


if __name__ == "__main__":
    main()

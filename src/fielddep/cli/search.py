"""`fielddep search`: good settings of a model, chosen on validation rows within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fielddep.cli.console import console, print_table, say
from fielddep.cli.data import RawOption
from fielddep.cli.experiment import experiment_rows, going_on, split_settings
from fielddep.cli.options import ConfigOption, SetOption, TargetOption, TaskOption
from fielddep.experiments.lookers import SearchLooker

if TYPE_CHECKING:
    from fielddep.experiments.search import SearchResult
    from fielddep.experiments.trial_records import TrialRecord

SourceArgument = Annotated[
    str,
    typer.Argument(help="A store, a table (file, folder or glob), or a data set by name.", metavar="STORE|TABLE|NAME"),
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the search.", metavar="DIR")]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model", help="Model: those of fit, lightgbm, catboost, mdl-wo-dep, mdl-global-dep.", metavar="NAME"
    ),
]
TrialsOption = Annotated[int, typer.Option("--trials", help="Trials at most.", metavar="N")]
MinutesOption = Annotated[float | None, typer.Option("--minutes", help="Minutes at most.", metavar="M")]
RowsOption = Annotated[
    int | None, typer.Option("--rows", help="Tune on a random sample of so many training rows.", metavar="N", min=1)
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of the search and its trainings. Default: train.seed.", metavar="N")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="CPU threads.", metavar="N", min=1)]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print the result and warnings only.")]


def search(
    source: SourceArgument,
    out: OutOption,
    model: ModelOption = "mdl",
    target: TargetOption = None,
    task: TaskOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    trials: TrialsOption = 30,
    minutes: MinutesOption = None,
    rows: RowsOption = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    raw: RawOption = None,
    quiet: QuietOption = False,
) -> None:
    """Search settings of a model on validation rows; go on where an earlier call stopped.

    DIR/best.toml is what `fit --config` takes. Settings that are given, by --set or in --config, are not searched.
    """
    from fielddep.experiments.contenders import find_contender, read_settings
    from fielddep.experiments.experiment_folder import SEARCH
    from fielddep.experiments.processes import end_with_parent
    from fielddep.experiments.search import Budget
    from fielddep.experiments.search import search as run_search

    end_with_parent()
    contender, budget = find_contender(model), Budget(trials=trials, minutes=minutes)
    found = {} if config is None else read_settings(config, contender)
    settings, fixed = split_settings(set_, target, task, found)
    own_seed = contender.config(fixed).train.seed  # refuses what is no setting before anything is read
    chosen_seed = own_seed if seed is None else seed
    if threads is not None:
        fixed["train.threads"] = threads
    options: dict[str, object] = {"--model": model, "--target": target, "--task": task, "--config": config}
    options |= {"--trials": trials, "--minutes": minutes, "--rows": rows}
    options |= {"--seed": seed, "--threads": threads, "--raw": raw}
    words = ["search", source, "--out", str(out)]
    looker = SearchLog(trials, quiet=quiet)
    with (
        going_on(words, "the trials that are over", options, set_, {"--quiet": quiet}),
        experiment_rows(source, out, SEARCH, settings=settings, raw=raw, quiet=quiet) as named,
        looker.bar,
    ):
        result = run_search(
            named.store, contender, out, budget=budget, given=fixed, seed=chosen_seed, n_rows=rows, looker=looker
        )
    print_search(result, out)


def print_search(result: SearchResult, out: Path) -> None:
    """The best settings and how they compare with the defaults."""
    from fielddep.experiments.search import BEST
    from fielddep.experiments.trial_records import COMPLETE, FAILED, PRUNED

    best, first = result.best, result.records[0]
    rows = [[path, str(value)] for path, value in best.settings.items()] or [["-", "the defaults"]]
    print_table(["setting", "value"], rows, title=f"best of {len(result.records)} trials", texts=("value",))
    states = [record.state for record in result.records]
    counts = ", ".join(f"{states.count(state)} {state}" for state in (COMPLETE, PRUNED, FAILED) if state in states)
    default = "" if first.loss is None else f", {first.loss:.5f} with the defaults"
    stream = console()
    stream.print(f"validation loss {best.loss:.5f} (trial {best.number}){default}; {counts}", soft_wrap=True)
    stream.print(usage_of(result.config.model.name, out / BEST), soft_wrap=True)


def usage_of(model: str, best: Path) -> str:
    """What can be done with the best settings; `fit` trains no trees."""
    from fielddep.experiments.tree_configs import TREE_CONFIGS

    if model not in TREE_CONFIGS:
        return f"train with it: fielddep fit ... --config {best}"
    return (
        f"compare with it: copy {best} to CONFIGS/{model}.toml, a folder of yours, then "
        f"fielddep compare ... --models mdl,{model} --configs CONFIGS"
    )


class SearchLog(SearchLooker):
    """A line a trial, and on a terminal a live bar.

    Args:
        n_trials: trials at most.
        quiet: whether to show nothing.
    """

    def __init__(self, n_trials: int, *, quiet: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        log = console(stderr=True)
        text = TextColumn("{task.description}")
        self.quiet = quiet
        self.bar = Progress(
            text,
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=log,
            disable=quiet or not log.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("", total=n_trials)

    def on_begin(self, number: int) -> None:
        """Show which trial it is."""
        self.bar.update(self.task, description=f"trial {number}", completed=number)

    def on_loss(self, number: int, loss: float) -> None:
        """Show the loss."""
        self.bar.update(self.task, description=f"trial {number}: loss {loss:.5f}")

    def on_end(self, record: TrialRecord, best: TrialRecord | None) -> None:
        """Print the line."""
        if self.quiet:
            return
        loss = "" if record.loss is None else f" loss {record.loss:.5f}"
        why = f" ({record.reason})" if record.reason else ""
        top = "" if best is None else f"; best {best.loss:.5f}, trial {best.number}"
        say(f"trial {record.number}: {record.state}{loss}{why}, {record.seconds:.0f} s{top}")

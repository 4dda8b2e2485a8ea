"""What does a list field add? MovieLens-1M with the genres of every movie, tuned settings, the split of ml-rating.

    python benchmarks/accuracy/genres.py

Results are appended to `genres.csv` one by one. Asked: an MSE below that of MDL without genres in `results.csv`.
"""

from __future__ import annotations

import csv
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import torch

from fielddep.artifacts.run import source_version
from fielddep.config.settings import Config
from fielddep.datasets import find_recipe, load_table
from fielddep.datasets.raw import RawFile, find_raw_files
from fielddep.datasets.recipe import raw_folder
from fielddep.training.fit import fit

HERE = Path(__file__).parent
RESULTS, SETTINGS = HERE / "genres.csv", HERE / "configs" / "mdl-ml-rating.toml"
COLUMNS = ("fields", "seed", "part", "mse", "cpu_seconds", "threads", "commit")
N_SEEDS = 5


def with_genres(ratings: pl.DataFrame) -> pl.DataFrame:
    """The table with the genres of every movie, separated by bars."""
    folder = raw_folder(None)
    assert folder is not None, "name the folder with ml-1m.zip in FIELDDEP_DATA"
    files = find_raw_files([RawFile(name="movies.dat", n_bytes=0)], folder, archives=("ml-1m.zip",))
    lines = [line.split("::") for line in files["movies.dat"].read().decode("latin-1").splitlines()]
    movies = pl.DataFrame({"movie": [line[0] for line in lines], "genres": [line[2] for line in lines]})
    return ratings.join(movies, on="movie", how="left", maintain_order="left")


def settings(fields: str, seed: int) -> Config:
    """Those of the recipe and the search, with one more field."""
    recipe, tuned = find_recipe("ml-rating"), Config.from_toml(SETTINGS)
    changes: dict[str, object] = {}
    if fields != "ids":
        changes = {"data.fields": [*recipe.facts.fields, "genres"], "data.lists": {"genres": "|"}}
    found = replace(recipe.config(settings=changes), model=tuned.model, train=tuned.train)
    return found.replace({"train.seed": seed})


def main() -> None:
    torch.set_num_threads(1)
    table = with_genres(load_table("ml-rating"))
    done = set()
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            done = {(row["fields"], row["seed"]) for row in csv.DictReader(file)}
    for seed in range(N_SEEDS):
        for fields in ("ids", "ids and genres"):
            if (fields, str(seed)) in done:
                continue
            started = time.process_time()
            found = fit(table if fields != "ids" else table.drop("genres"), settings(fields, seed)).metrics
            seconds = round(time.process_time() - started, 1)
            with RESULTS.open("a", newline="") as file:
                writer = csv.writer(file)
                if file.tell() == 0:
                    writer.writerow(COLUMNS)
                for part in ("validation", "test"):
                    mse = round(found[part]["mse"], 6)
                    writer.writerow((fields, seed, part, mse, seconds, 1, source_version()))
                    print(fields, seed, part, mse, seconds, flush=True)


if __name__ == "__main__":
    main()

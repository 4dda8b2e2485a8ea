"""Print facts about a store of the synthetic click log as JSON.

    python benchmarks/size/facts.py STORE
    python benchmarks/size/facts.py STORE --part test

With --part, also metrics of two predictions that need no training, on the rows of that part: the click rate of the
training rows for every row (`base`), and the true probability from the generator (`best`), which a model can only beat
by luck. The rows are generated again, so seed and number of categories must be those of the store's table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from clicks import CLICK_PROBABILITY, CLICK_TARGET, N_CATEGORIES, click_chunks
from fielddep.store.store import PART_NAMES, Store


def facts_of(store: Store) -> dict[str, object]:
    return {
        "n_rows": store.n_rows,
        "n_rows_of": store.n_rows_of,
        "n_fields": len(store.layout.names),
        "n_categories": store.encoder.vocabulary_frame()["value"].count(),
    }


def truth_of(store: Store, part: str, seed: int, n_categories: int) -> dict[str, float]:
    """Metrics of the base rate and of the true probability on the rows of a part."""
    clicks, probabilities = [], []
    n_clicks = start = 0
    chunks = click_chunks(store.n_rows, seed, n_categories=n_categories, with_probability=True)
    for chunk in chunks:
        marks = store.parts(start, start + chunk.height)
        start += chunk.height
        click = chunk[CLICK_TARGET].to_numpy()
        if len(clicks) == 0 and not np.array_equal(store.read(0, len(click)).target_R, click):
            sys.exit("the store is of another table than the generator makes; give its --seed and --categories")
        n_clicks += int(click[marks == PART_NAMES.index("train")].sum())
        clicks.append(click[marks == PART_NAMES.index(part)])
        probabilities.append(chunk[CLICK_PROBABILITY].to_numpy()[marks == PART_NAMES.index(part)])
    truth, best = np.concatenate(clicks), np.concatenate(probabilities)
    base = np.full(len(truth), n_clicks / store.n_rows_of["train"])
    return {
        "n_rows_part": len(truth),
        "click_rate": float(truth.mean()),
        "base_logloss": float(log_loss(truth, base)),
        "best_logloss": float(log_loss(truth, best)),
        "best_auc": float(roc_auc_score(truth, best)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--part", choices=PART_NAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--categories", type=int, default=N_CATEGORIES)
    arguments = parser.parse_args()
    store = Store.open(arguments.store)
    facts = facts_of(store)
    if arguments.part:
        facts |= truth_of(store, arguments.part, arguments.seed, arguments.categories)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()

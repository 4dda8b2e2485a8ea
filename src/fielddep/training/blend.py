"""Train the trees of a blend, once its network is trained, and find the weights of all members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fielddep.config.settings import Config
from fielddep.config.trees import BlendConfig, LightGBMConfig
from fielddep.encoding.encoder import Encoder
from fielddep.encoding.rows import sample_rows
from fielddep.nn.blend import MEMBERS, Blend, Trees
from fielddep.observer import Observer
from fielddep.store.shards import StorePart
from fielddep.training.mixing import MAX_ROWS, weights_of
from fielddep.training.prepare import Prepared
from fielddep.training.tree_rows import TreeColumns
from fielddep.training.trees import TrainedTrees, lightgbm_from, train_trees
from fielddep.training.unknown import UnknownTraining


def train_blend(model: Blend, prepared: Prepared, observer: Observer) -> list[TrainedTrees]:
    """Train the trees, add them to the model, and set the weights of its members."""
    found = []
    for name, config in zip(model.members[1:], _settings(model, prepared), strict=True):
        observer.on_part(name, config.max_trees, 1)
        found.append(train_trees(prepared, config, observer, hide=_hiding(prepared)))
    model.trees = found
    rows = sample_rows(prepared.parts["validation"].chunks(), MAX_ROWS).rows
    outputs_PRC = model.member_outputs(rows).cpu().double()
    model.share_P.copy_(weights_of(outputs_PRC, model.share_P.cpu().double(), rows, prepared.target))
    return found


def refit_blend(
    model: Blend, trained: Sequence[Trees], prepared: Prepared, rows: StorePart, observer: Observer
) -> None:
    """Add trees of all rows to a new model, as many as the first training kept."""
    found = []
    for config, first in zip(_settings(model, prepared), trained, strict=True):
        config = replace(config, max_trees=first.n_best)
        found.append(train_trees(prepared, config, observer, rows=rows, hide=_hiding(prepared)))
    model.trees = found


def load_trees(model: Blend, texts: Sequence[str], encoder: Encoder, config: Config) -> list[TrainedTrees]:
    """The trees of a saved model from what LightGBM wrote, one text for each."""
    return [
        lightgbm_from(text, TreeColumns.of(encoder, evidence=True, categories=name == MEMBERS[2]), config)
        for name, text in zip(model.members[1:], texts, strict=True)
    ]


def _settings(model: Blend, prepared: Prepared) -> list[LightGBMConfig]:
    config = prepared.config.model
    assert isinstance(config, BlendConfig)
    return [config.trees(categories=name == MEMBERS[2]) for name in model.members[1:]]


def _hiding(prepared: Prepared) -> UnknownTraining:
    encoder, train = prepared.encoder, prepared.config.train
    return UnknownTraining(encoder.layout, encoder.counts, rate=train.unknown_rate, seed=train.seed)

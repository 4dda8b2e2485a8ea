"""Small models and encoded rows that the tests over all models share."""

from __future__ import annotations

from fielddep.config import MODEL_CONFIGS
from fielddep.config.settings import Config
from fielddep.training.prepare import Prepared, decided

SMALL = {
    "mdl": {"d_embed": 4, "hidden": [8]},
    "xdeepfm": {"d_embed": 4, "hidden": [8], "n_maps": [3, 2]},
    "afn": {"d_embed": 4, "hidden": [8], "n_neurons": 6},
    "llfm": {"d_embed": 4, "n_anchors": 3},
    "rafm": {"d_embed": 4, "d_levels": [6], "thresholds": [5]},
    "fwl": {"d_embed": 3, "variance_every": 2},
    "node": {"d_embed": 4, "n_trees": 6, "depth": 3, "n_layers": 2},
    "tabnet": {"d_embed": 4, "d_decision": 6, "d_attention": 5, "virtual_batch": 16},
    "tabtransformer": {"d_embed": 8, "n_layers": 2, "n_heads": 2},
    "saint": {"d_embed": 8, "n_heads": 2, "n_reference": 8},
    "finalmlp": {"d_embed": 4, "hidden": [10], "hidden_2": [5], "gate_hidden": [6], "n_heads": 5},
}
"""Small sizes; a model that is not named has embeddings of 4, networks of 8 units and its other defaults."""


def small_settings(name: str) -> dict[str, object]:
    """Name and small sizes of a model, by dotted path."""
    known = set(MODEL_CONFIGS[name].__dataclass_fields__)
    sizes = SMALL.get(name, {"d_embed": 4, "hidden": [8]})
    return {"model.name": name, **{f"model.{key}": value for key, value in sizes.items() if key in known}}


def small_config(name: str, **settings: object) -> Config:
    """Settings of a small model; further ones as `quick_config` takes them, with `__` for the dot."""
    return Config().replace({**small_settings(name), **{k.replace("__", "."): v for k, v in settings.items()}})


def for_model(prepared: Prepared, config: Config) -> Prepared:
    """Rows that are encoded for MDL, for another model: it sees the same ids, and evidence only if it uses any."""
    assert (config.data, config.split) == (prepared.config.data, prepared.config.split)
    return Prepared.of(prepared.store, decided(config, prepared.store))

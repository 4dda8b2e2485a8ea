"""The baselines: one model per file, with the contract, trainer, bundle and predictor of MDL."""

from __future__ import annotations

from typing import Any

from fielddep.nn.baselines.afn import AFN
from fielddep.nn.baselines.deepfm import DeepFM
from fielddep.nn.baselines.ffm import FFM
from fielddep.nn.baselines.finalmlp import FinalMLP
from fielddep.nn.baselines.fm import FM
from fielddep.nn.baselines.fwl import FWL
from fielddep.nn.baselines.ifm import IFM
from fielddep.nn.baselines.inn import INN
from fielddep.nn.baselines.llfm import LLFM
from fielddep.nn.baselines.lr import LR
from fielddep.nn.baselines.node import NODE
from fielddep.nn.baselines.rafm import RaFM
from fielddep.nn.baselines.saint import SAINT
from fielddep.nn.baselines.tabnet import TabNet
from fielddep.nn.baselines.tabtransformer import TabTransformer
from fielddep.nn.baselines.wide_deep import WideDeep
from fielddep.nn.baselines.xdeepfm import XDeepFM

BASELINES: dict[str, Any] = {
    "lr": LR,
    "fm": FM,
    "ffm": FFM,
    "fwl": FWL,
    "llfm": LLFM,
    "rafm": RaFM,
    "afn": AFN,
    "deepfm": DeepFM,
    "finalmlp": FinalMLP,
    "ifm": IFM,
    "inn": INN,
    "wide_deep": WideDeep,
    "xdeepfm": XDeepFM,
    "node": NODE,
    "tabnet": TabNet,
    "tabtransformer": TabTransformer,
    "saint": SAINT,
}

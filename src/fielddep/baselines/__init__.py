"""The rivals of MDL: one model a file, the same contract, trainer, bundle and predictor."""

from __future__ import annotations

from typing import Any

from fielddep.baselines.afn import AFN
from fielddep.baselines.deepfm import DeepFM
from fielddep.baselines.ffm import FFM
from fielddep.baselines.finalmlp import FinalMLP
from fielddep.baselines.fm import FM
from fielddep.baselines.fwl import FWL
from fielddep.baselines.ifm import IFM
from fielddep.baselines.inn import INN
from fielddep.baselines.llfm import LLFM
from fielddep.baselines.lr import LR
from fielddep.baselines.node import NODE
from fielddep.baselines.rafm import RaFM
from fielddep.baselines.saint import SAINT
from fielddep.baselines.tabnet import TabNet
from fielddep.baselines.tabtransformer import TabTransformer
from fielddep.baselines.wide_deep import WideDeep
from fielddep.baselines.xdeepfm import XDeepFM

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

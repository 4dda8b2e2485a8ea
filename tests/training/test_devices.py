"""A device that is not there is refused wherever one is named, before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.artifacts.bundle import Bundle
from fielddep.artifacts.predictor import Predictor
from fielddep.errors import ConfigError
from fielddep.training.fit import fit
from tests.conftest import quick_config, small_frame
from tests.helpers import raises

BUNDLE = Path(__file__).parents[1] / "golden" / "bundle-v1" / "binary"


@pytest.mark.parametrize("name", ["toaster", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_there(name):
    with raises(ConfigError, "device", f"'{name}'"):
        Bundle.load(BUNDLE, device=name)
    with raises(ConfigError, "device", f"'{name}'"):
        Predictor(BUNDLE, device=name)
    with raises(ConfigError, "device", f"'{name}'"):
        Predictor(Bundle.load(BUNDLE), device=name)
    with raises(ConfigError, "train.device", f"'{name}'"):
        fit(small_frame(60), quick_config(train__device=name))

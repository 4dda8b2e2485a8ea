"""A device that is not there is refused wherever one is named, before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from fielddep.bundle import Bundle
from fielddep.errors import ConfigError
from fielddep.fitting import fit_table
from fielddep.predictor import Predictor
from tests.conftest import quick_config, small_frame

BUNDLE = Path(__file__).parents[1] / "golden" / "bundle-v1" / "binary"


@pytest.mark.parametrize("name", ["toaster", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_there(name):
    message = rf"^device must be a device of this machine, such as cpu; given '{name}'"
    with pytest.raises(ConfigError, match=message):
        Bundle.load(BUNDLE, device=name)
    with pytest.raises(ConfigError, match=message):
        Predictor(BUNDLE, device=name)
    with pytest.raises(ConfigError, match=message):
        Predictor(Bundle.load(BUNDLE), device=name)
    with pytest.raises(ConfigError, match=rf"^train.device must be a device of this machine, .* given '{name}'"):
        fit_table(small_frame(60), quick_config(train__device=name))

"""Devices: whether torch has the one that is asked for."""

from __future__ import annotations

import torch

from fielddep.errors import ConfigError


def check_device(name: str, setting: str = "device") -> None:
    """Refuse a torch device that is not there, before any work is done.

    Args:
        name: as torch names it.
        setting: what it was given as, for the message.

    Raises:
        ConfigError: says which name was given.
    """
    try:
        torch.empty(0, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{setting} must be a device of this machine, such as cpu; given {name!r}: {reason}"
        ) from None

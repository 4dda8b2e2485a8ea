"""Slow forms of attention, its feed-forward network and LayerNorm: token by token, head by head."""

from __future__ import annotations

import math

import numpy as np
from torch import nn


def weights(module: nn.Module) -> dict[str, np.ndarray]:
    """Weights of a module by name."""
    return {name: value.detach().double().numpy() for name, value in module.named_parameters()}


def linear(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0.0)


def layer_norm(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    return (x - x.mean()) / math.sqrt(x.var() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def attend(seekers: list, others: list[list], w: dict[str, np.ndarray], n_heads: int, d_head: int) -> list:
    """Each of `seekers` looks at its own list of tokens; all are normalised already."""
    size = n_heads * d_head
    found = []
    for seeker, seen in zip(seekers, others, strict=True):
        query = linear(seeker, w, "attention.inputs")[:size]
        mixed = np.zeros(size)
        for h in range(n_heads):
            part = slice(h * d_head, (h + 1) * d_head)
            keys = [linear(token, w, "attention.inputs")[size : 2 * size][part] for token in seen]
            values = [linear(token, w, "attention.inputs")[2 * size :][part] for token in seen]
            raised = [math.exp(query[part] @ key / math.sqrt(d_head)) for key in keys]
            mixed[part] = sum(r / sum(raised) * value for r, value in zip(raised, values, strict=True))
        found.append(linear(mixed, w, "attention.output"))
    return found


def feed_forward(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    value, gate = np.split(linear(x, w, "feed_forward.hidden"), 2)
    gelu = np.array([g * 0.5 * (1 + math.erf(g / math.sqrt(2))) for g in gate])
    return linear(value * gelu, w, "feed_forward.output")


def layer(tokens: list, seen_by: list[list], module: nn.Module, n_heads: int, d_head: int) -> list:
    """A layer of attention between fields or rows: token s looks at the tokens `seen_by[s]`."""
    w = weights(module)
    seekers = [layer_norm(token, w, "attention_norm") for token in tokens]
    others = [[layer_norm(token, w, "attention_norm") for token in seen] for seen in seen_by]
    after = [t + a for t, a in zip(tokens, attend(seekers, others, w, n_heads, d_head), strict=True)]
    return [t + feed_forward(layer_norm(t, w, "forward_norm"), w) for t in after]

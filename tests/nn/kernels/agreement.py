"""Models and batches of any shape, and how far compiled and plain forms may differ on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fielddep.config.mdl import MDLConfig
from fielddep.encoding.rows import Batch, Inputs, Layout, ListInput
from fielddep.nn import kernels
from fielddep.nn.mdl import MDL
from fielddep.training.metrics import mean_loss

ROUNDING = 2e-5
"""Largest difference in units of the largest entry: sums of float32 in another order."""
SMALLEST = 1e-6
"""A tensor of smaller entries is a sum of larger ones that cancel; its rounding is theirs."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and a batch."""

    n_ids: tuple[int, ...]
    d_embed: int
    n_rows: int
    numerical: tuple[int, ...] = ()
    crosses: tuple[tuple[int, int], ...] = ()
    lists: tuple[int, ...] = ()
    shares: tuple[tuple[int, int], ...] = ()
    settings: Mapping[str, object]
    seed: int = 0

    @property
    def layout(self) -> Layout:
        names = tuple(f"f{i}" for i in range(len(self.n_ids)))
        special = {"numerical": self.numerical, "crosses": self.crosses, "lists": self.lists, "shares": self.shares}
        return Layout(names=names, n_ids=self.n_ids, **special)

    def model(self, n_outputs: int = 1) -> MDL:
        """Weights that move the refinement far, but not so large that it diverges and blows up rounding."""
        torch.manual_seed(self.seed)
        model = MDL(self.layout, n_outputs, MDLConfig(d_embed=self.d_embed, **self.settings))
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight), alpha=0.6 * self.d_embed**-0.5)
        return model

    def batch(self, seed: int = 0) -> Batch:
        """Skewed ids: some fields hold few distinct values, others hardly any twice."""
        generator = torch.Generator().manual_seed(1000 + self.seed + seed)
        columns = [
            offset + (n * torch.rand(self.n_rows, generator=generator) ** 2).long()
            for offset, n in zip(self.layout.offsets, self.n_ids, strict=True)
        ]
        numbers = torch.randn(self.n_rows, len(self.numerical), generator=generator)
        target = torch.randint(2, (self.n_rows,), generator=generator).float()
        lists = tuple(self._lists(f, generator) for f in self.lists)
        return Batch(inputs=Inputs(torch.stack(columns, dim=1), numbers, lists), target_B=target)

    def _lists(self, column: int, generator: torch.Generator) -> ListInput:
        """Lists of one to four values, often the same ones."""
        lengths = torch.randint(1, 5, (self.n_rows,), generator=generator)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        drawn = (self.n_ids[column] * torch.rand(int(starts[-1]), generator=generator) ** 2).long()
        return ListInput(column, self.layout.offsets[column] + drawn, starts)


def gradients(model: MDL, batch: Batch, kind: kernels.Choice) -> dict[str, torch.Tensor]:
    """Logits and the gradient of every weight, dense, by name."""
    assert batch.target_B is not None
    model.zero_grad()
    with kernels.forced(kind):
        logits_BC, penalty = model.training_forward(batch.inputs)
        loss = mean_loss(logits_BC, batch.target_B, None, "binary")
        (loss if penalty is None else loss + penalty).backward()
    found = {name: w.grad.to_dense() for name, w in model.named_parameters() if w.grad is not None}
    return {**found, "logits": logits_BC.detach()}


def assert_agree(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], rounding: float = ROUNDING
) -> None:
    """Equal up to rounding, each tensor in units of its largest entry."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        unit = float(tensor.abs().max()) + 1e-12
        difference = float((found[name] - tensor).abs().max())
        assert difference <= max(rounding * unit, SMALLEST), f"{name}: differs by {difference:.2e} of {unit:.2e}"

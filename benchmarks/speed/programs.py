"""The programs that the speed benchmark compares; each can train on a batch and predict one.

*fielddep* is the library as it is, *fielddep-plain* the same with its compiled kernels switched off, *textbook* the
form of `textbook.py`. Training means complete steps: forward, backward and optimizer. The library trains with the
settings that `fit` would choose, including the ridge, but does not replace ids by the rare id, because no other program
does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol, TypeAlias

import torch

from fielddep.config.defaults import fill_defaults
from fielddep.config.settings import Config
from fielddep.encoding.rows import Batch
from fielddep.encoding.target import Target
from fielddep.nn import build_model
from fielddep.nn.model import BATCH_ROWS
from fielddep.store.loader import Loader
from fielddep.store.shards import StorePart
from fielddep.training.checkpoint import CheckpointFolder
from fielddep.training.optim import rarity_scale
from fielddep.training.trainer import Trainer
from shapes import Shape
from textbook import TextbookMDL, TextbookTrainer

Kernels: TypeAlias = Callable[[], AbstractContextManager[object]]

TARGET = Target(name="y", task="binary", classes=(0, 1))
N_TABLE_ROWS = 1_000_000
"""Rows of the table that settings and counts depend on."""
VALIDATION_ROWS = 8192
FIT_STEPS = 5


class Program(Protocol):
    """What is timed."""

    def train(self, batch: Batch) -> None:
        """One training step."""

    def predict(self, batch: Batch) -> torch.Tensor:
        """Logits of a batch, without gradients."""

    def fit(self) -> None:
        """Train `FIT_STEPS` steps and evaluate once, to measure peak memory."""


def plain_kernels() -> AbstractContextManager[object]:
    """Use the plain PyTorch form of the library, as it does without compiled kernels."""
    try:
        from fielddep.nn import kernels
    except ImportError:
        return nullcontext()
    forced: Callable[[str], AbstractContextManager[object]] | None = getattr(kernels, "forced", None)
    return nullcontext() if forced is None else forced("plain")


def config_of(shape: Shape) -> Config:
    """The settings that `fit` would choose, with the sizes of the shape and the fixed steps of the textbook form."""
    settings = {
        "data.target": TARGET.name,
        "data.crosses": "none",
        "model.d_embed": shape.d_embed,
        "model.n_inner_steps": shape.n_inner_steps,
        "model.inner_step": "fixed",
        "train.batch_size": shape.batch_rows,
        "train.unknown_rate": 0.0,
        "train.max_epochs": 1,
        "train.eval_every": 1.0,
    }
    return fill_defaults(Config().replace(settings), n_rows=N_TABLE_ROWS)


class FieldDep:
    """The library, trained by its own `Trainer`.

    Args:
        shape: sizes of table and model.
        kernels: context within which it works.
        share: a trainer to share, so that the largest shapes fit into memory next to the textbook form.
        dependencies: "refined", or "none" for the model without inner loop.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        kernels: Kernels = nullcontext,
        share: Trainer | None = None,
        dependencies: str = "refined",
    ) -> None:
        self.kernels = kernels
        self._folder = tempfile.TemporaryDirectory()
        with kernels():
            self.trainer = share or _trainer(shape, dependencies, Path(self._folder.name))

    def train(self, batch: Batch) -> None:
        """One training step."""
        with self.kernels():
            self.trainer.train_step(batch)

    @torch.no_grad()
    def predict(self, batch: Batch) -> torch.Tensor:
        """Logits, batch by batch as in `Predictor.logits`."""
        model = self.trainer.model.eval()
        starts = range(0, len(batch), BATCH_ROWS)
        with self.kernels():
            return torch.cat([model(batch.inputs.take(slice(at, at + BATCH_ROWS))) for at in starts])

    def fit(self) -> None:
        """The loop of the library with a folder for checkpoints, as `fielddep fit` runs it.

        It also keeps a mean of the weights over evaluations, and the best so far.
        """
        with self.kernels():
            self.trainer.fit()


def _trainer(shape: Shape, dependencies: str, folder: Path) -> Trainer:
    """A trainer like that of `fielddep fit`, with an epoch of `FIT_STEPS` steps."""
    config = config_of(shape).replace({"model.dependencies": dependencies})
    trainer = Trainer(
        build_model(shape.layout, 1, config.model, seed=0),
        TARGET,
        config.train,
        train=Loader(shape.table(FIT_STEPS * shape.batch_rows), batch_size=shape.batch_rows, seed=0),
        validation=StorePart.of(shape.table(VALIDATION_ROWS, seed=1)),
        l2_scale_I=rarity_scale(shape.counts(N_TABLE_ROWS), config.train.l2_rarity),
        checkpoints=CheckpointFolder(folder),
    )
    for state in trainer.optimizer.state().values():
        state.zero_()  # touches the memory, which the system allocates only now; later steps have no such delay
    return trainer


def fielddep_plain(shape: Shape, *, share: Trainer | None = None, dependencies: str = "refined") -> FieldDep:
    """The library without its compiled kernels."""
    return FieldDep(shape, kernels=plain_kernels, share=share, dependencies=dependencies)


class Textbook:
    """The textbook form."""

    def __init__(self, shape: Shape) -> None:
        torch.manual_seed(0)
        config = config_of(shape)
        assert config.train.lr is not None
        model = TextbookMDL(
            n_ids=shape.n_ids,
            n_fields=len(shape.fields),
            d_embed=shape.d_embed,
            n_inner_steps=shape.n_inner_steps,
            inner_lr=config.model.inner_lr,
            sparsity=config.model.sparsity,
        )
        self.trainer = TextbookTrainer(model, lr=config.train.lr)
        self.shape = shape

    def train(self, batch: Batch) -> None:
        """One training step."""
        assert batch.target_B is not None
        self.trainer.train_step(batch.inputs.ids_BF, batch.target_B)

    @torch.no_grad()
    def predict(self, batch: Batch) -> torch.Tensor:
        """Logits, one training batch at a time, because more would not fit into memory."""
        model = self.trainer.model.eval()
        return torch.cat([model(ids_BF) for ids_BF in torch.split(batch.inputs.ids_BF, self.shape.batch_rows)])

    def fit(self) -> None:
        """Training steps; no copies of the weights are kept."""
        for batch in self.shape.batches(FIT_STEPS):
            self.train(batch)
        self.predict(self.shape.batches(1, batch_rows=VALIDATION_ROWS, seed=1)[0])


PROGRAMS: Mapping[str, Callable[[Shape], Program]] = {
    "fielddep": FieldDep,
    "fielddep-plain": fielddep_plain,
    "textbook": Textbook,
}


def build_programs(shape: Shape, names: Sequence[str]) -> dict[str, Program]:
    """Programs that take turns in one process; the two forms of the library work on the same weights."""
    built: dict[str, Program] = {}
    for name in names:
        ours = built.get("fielddep")
        if name == "fielddep-plain" and isinstance(ours, FieldDep):
            built[name] = fielddep_plain(shape, share=ours.trainer)
        else:
            built[name] = PROGRAMS[name](shape)
    return built

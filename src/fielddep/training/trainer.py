"""The loop: fit -> run_epoch -> train_step, with evaluation inside the epoch.

A run is a function of its data, settings and seed: the order of rows depends on seed and epoch, replaced ids on seed
and step, dropout on the random state that every checkpoint keeps. So a run that was killed and resumed ends with
the weights of one that was not.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from fielddep.config.settings import TrainConfig
from fielddep.encoding.rows import Batch, Inputs
from fielddep.encoding.target import Target
from fielddep.errors import CheckpointError, TrainingError
from fielddep.nn.model import START_ROWS, FieldModel
from fielddep.observer import Observer
from fielddep.store.loader import Loader
from fielddep.store.shards import StorePart
from fielddep.training.average import WeightAverage
from fielddep.training.checkpoint import BestWeights, CheckpointFolder, Evaluation, History, copy_weights
from fielddep.training.metrics import mean_loss, measure
from fielddep.training.optim import Optimizer

NAN_CHECK_STEPS = 50
"""On an accelerator the loss is looked at only every so many steps, as each look waits for the device."""


@dataclass
class TrainerState:
    """What the loop remembers between steps; plain numbers, kept in every checkpoint."""

    step: int = 0
    best_loss: float = math.inf
    """Of standardised targets, so that the unit of a target cannot matter."""
    best_step: int = -1
    n_bad: int = 0
    """Evaluations since the last improvement."""
    n_bad_at_lr: int = 0
    """Evaluations since the last improvement or drop of the learning rate."""
    lr: float = 0.0
    seconds: float = 0.0
    train_seconds: float = 0.0
    """The same without evaluations and checkpoints."""
    finished: bool = False


class Trainer:
    """Trains a model with early stopping on the validation loss; the best weights are restored at the end.

    Args:
        model: trained in place.
        target: task and classes.
        config: resolved settings (nothing left to decide).
        train: shuffled training rows.
        validation: validation rows.
        prepare: changes a training batch, for instance to train the rare id.
        l2_scale_I: factor of the ridge of every joint id.
        observer: gets every step and evaluation.
        history: where evaluations are kept.
        checkpoints: folder for checkpoints, which keeps the best weights too; None writes none.
    """

    def __init__(
        self,
        model: FieldModel,
        target: Target,
        config: TrainConfig,
        *,
        train: Loader,
        validation: StorePart,
        prepare: Callable[[Batch, int], Batch] | None = None,
        l2_scale_I: torch.Tensor | None = None,
        observer: Observer | None = None,
        history: History | None = None,
        checkpoints: CheckpointFolder | None = None,
    ) -> None:
        assert (
            config.optimizer is not None
            and config.lr is not None
            and config.eval_every is not None
            and config.embedding_l2 is not None
        )
        self.model = model
        self.target = target
        self.config = config
        self.train = train
        self.validation = validation
        self.prepare = prepare or (lambda batch, step: batch)
        self.observer = observer or Observer()
        self.history = History() if history is None else history
        self.checkpoints = checkpoints
        self.device = torch.device(config.device)
        self.model.to(self.device)
        self.state = TrainerState(lr=config.lr)
        first_order_l2 = config.embedding_l2 if config.first_order_l2 is None else config.first_order_l2
        self.optimizer = Optimizer(
            model,
            kind=config.optimizer,
            lr=config.lr,
            l2={n: first_order_l2 if n == "first_order" else config.embedding_l2 for n, _ in model.tables()},
            l2_scale_I=None if l2_scale_I is None else l2_scale_I.to(self.device),
            weight_decay=config.weight_decay,
            clip_norm=config.clip_norm,
        )
        self.average = WeightAverage(config.average_decay) if config.average_decay > 0 else None
        self.eval_interval = max(1, round(train.n_batches / config.eval_every))
        self.n_steps = train.n_batches * config.max_epochs
        self._best = BestWeights(checkpoints)
        # A sum in place: thousands of small tensors, kept while large ones come and go, would fragment the memory.
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        self._n_losses = 0

    def fit(self, *, resume: bool = False) -> History:
        """Train to the end; with `resume`, from the last checkpoint if there is one."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(self.config.seed)
            if resume:
                self._restore()
            self._clock = time.perf_counter() - self.state.seconds
            if self.state.step == 0:
                self._start_model()
            while not self.state.finished:
                self.run_epoch()
        self._best.restore(self.model, self.state.best_step)
        self.model.eval()
        return self.history

    def _start_model(self) -> None:
        """Show some training rows to a model that starts from rows."""
        if type(self.model).start_from is FieldModel.start_from:
            return
        found: list[Inputs] = []
        n_rows = 0
        for batch in self.train.batches():
            found.append(batch.to(self.device).inputs)
            n_rows += len(batch)
            if n_rows >= START_ROWS:
                break
        self.model.start_from(Inputs.concat(found))

    def run_epoch(self) -> None:
        """Learn from the rest of the current epoch's batches, evaluating on the way."""
        epoch, start = divmod(self.state.step, self.train.n_batches)
        began = time.perf_counter()
        for batch in self.train.batches(epoch, start):
            self.train_step(batch)
            last = self.state.step == self.n_steps
            if self.state.step % self.eval_interval == 0 or last:
                self.state.train_seconds += time.perf_counter() - began
                self._evaluate_and_decide(last)
                if self.state.finished:
                    return
                began = time.perf_counter()
        self.state.train_seconds += time.perf_counter() - began

    def train_step(self, batch: Batch) -> None:
        """Learn from one batch."""
        self.model.train()
        self.state.step += 1
        batch = self.prepare(batch, self.state.step).to(self.device)
        assert batch.target_B is not None
        self.optimizer.lr = self.state.lr * self._decay()
        self.optimizer.zero_grad()
        logits_BC, penalty = self.model.training_forward(batch.inputs)
        loss = mean_loss(logits_BC, batch.target_B, batch.weight_B, self.target.task)
        total = loss if penalty is None else loss + penalty
        total.backward()  # type: ignore[no-untyped-call]
        if self.device.type == "cpu" or self.state.step % NAN_CHECK_STEPS == 0:
            self._guard(batch, total)
        self.optimizer.step(batch.inputs.ids_BF)
        self.model.after_step(self.state.step)
        self._loss_sum += loss.detach()
        self._n_losses += 1
        self.observer.on_step(self.state.step, len(batch), float(loss.detach()))

    def _evaluate_and_decide(self, last: bool) -> None:
        with self._averaged():
            self.model.eval()
            measured = measure(self.model.outputs, self.target, self.validation.chunks())
            loss = measured.standard_loss
            if not math.isfinite(loss):
                raise TrainingError(self._advice("the validation loss is not a number"))
            improved = self._is_better(loss)
            if improved:
                self._best.keep(self.model, self.state.step)
        if improved:
            self.state.best_loss, self.state.best_step = loss, self.state.step
            self.state.n_bad = self.state.n_bad_at_lr = 0
        else:
            self.state.n_bad += 1
            self.state.n_bad_at_lr += 1
        evaluation = Evaluation(
            step=self.state.step,
            epoch=self.state.step / self.train.n_batches,
            lr=self.state.lr,
            train_loss=float(self._loss_sum) / self._n_losses * self.target.loss_unit,
            validation=measured.metrics,
            best=improved,
            seconds=round(time.perf_counter() - self._clock, 3),
            rows_per_s=round(self.state.step / self.train.n_batches * self.train.n_rows / self.state.train_seconds, 1),
        )
        self._loss_sum.zero_()
        self._n_losses = 0
        self.history.add(evaluation)
        self.state.seconds = evaluation.seconds
        if self.state.n_bad_at_lr >= self.config.plateau_patience:
            self.state.lr *= self.config.plateau_factor
            self.state.n_bad_at_lr = 0
            if self.config.plateau_restore:
                self._best.restore(self.model, self.state.best_step)
        self.state.finished = last or self.state.n_bad >= self.config.patience
        self._checkpoint()
        self.observer.on_evaluation(evaluation)

    def _averaged(self) -> AbstractContextManager[None]:
        """Within the context the model has the mean of its weights over the last evaluations, if asked for."""
        if self.average is None:
            return nullcontext()
        self.average.update(self.model)
        batches = (batch.to(self.device) for batch in self.train.batches())
        return self.average.applied(self.model, batches)

    def _decay(self) -> float:
        """Factor of the learning rate at this step: with `lr_decay = "linear"` it falls to zero at the last epoch."""
        return 1.0 - (self.state.step - 1) / self.n_steps if self.config.lr_decay == "linear" else 1.0

    def _is_better(self, loss: float) -> bool:
        """Whether a validation loss fell by enough; `min_delta` is in the target's own unit, as losses are reported."""
        least = self.config.min_delta / self.target.scale / self.target.scale
        return self.state.best_step < 0 or loss < self.state.best_loss - least

    def _checkpoint(self) -> None:
        if self.checkpoints is None:
            return
        tensors = {f"model/{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"optimizer/{k}": v for k, v in self.optimizer.state().items()}
        if self.average is not None:
            tensors |= {f"average/{k}": v for k, v in self.average.state().items()}
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random_device"] = torch.cuda.get_rng_state(self.device)
        state = {**dataclasses.asdict(self.state), "history": [e.to_json() for e in self.history]}
        self.checkpoints.save(tensors, state, None)

    def _restore(self) -> None:
        checkpoint = None if self.checkpoints is None else self.checkpoints.load()
        if checkpoint is None:
            return
        history = checkpoint.state.pop("history")
        self.state = TrainerState(**checkpoint.state)
        try:
            copy_weights(self.model.state_dict(), checkpoint.tensors.under("model/"))
            self.optimizer.load_state(checkpoint.tensors.under("optimizer/"))
            if self.average is not None:
                self.average.load_state(checkpoint.tensors.under("average/"), self.device)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit this model ({str(error).splitlines()[0]}); data or settings have "
                "changed since it was written. Use the same table and settings, or start over with --force"
            ) from error
        torch.set_rng_state(checkpoint.tensors["random"].cpu())
        if self.device.type == "cuda" and "random_device" in checkpoint.tensors:
            torch.cuda.set_rng_state(checkpoint.tensors["random_device"].cpu(), self.device)
        self.history.restore(history)

    def _guard(self, batch: Batch, loss: torch.Tensor) -> None:
        if torch.isfinite(loss):
            return
        raise TrainingError(self._advice(f"the loss is {float(loss.detach())}", _suspect(self.model, batch)))

    def _advice(self, what: str, field: str | None = None) -> str:
        where = f" (field {field!r})" if field else ""
        return (
            f"{what} at step {self.state.step}{where}. Lower train.lr (now {self.state.lr:g}) or model.inner_lr, set "
            "train.clip_norm = 1.0, or bin the numerical field (data.numeric = 'quantile')"
        )


def _suspect(model: FieldModel, batch: Batch) -> str | None:
    """Field whose numbers or embeddings are not finite or largest, the likeliest cause of a diverged loss."""
    layout = model.layout
    for position, field in enumerate(layout.numerical):
        if not torch.isfinite(batch.inputs.numbers_BN[:, position]).all():
            return layout.names[field]
    sizes_F = torch.zeros(layout.n_columns)
    for _, table in model.tables():
        rows_BF = table.weight.detach()[table.rows_of(batch.inputs.ids_BF)].abs().amax(dim=2).cpu()
        sizes_F = torch.maximum(sizes_F, torch.nan_to_num(rows_BF, nan=math.inf).amax(dim=0))
    return layout.names[int(sizes_F.argmax())] if len(sizes_F) else None

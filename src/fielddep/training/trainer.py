"""The training loop: fit -> run_epoch -> train_step, with evaluations within an epoch.

A run is a function of data, settings and seed: row order depends on seed and epoch, replaced ids on seed and step,
dropout on the random state in the checkpoint. So a run that was killed and resumed ends with the same weights.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from fielddep.config.metrics import METRICS, loss_name
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
from fielddep.training.metrics import Measured, mean_loss, measure
from fielddep.training.optim import Optimizer

NAN_CHECK_STEPS = 50
"""Steps between two checks of the loss on an accelerator, because each check waits for the device."""


@dataclass
class TrainerState:
    """State of the loop between steps: plain numbers, saved in every checkpoint."""

    step: int = 0
    best_loss: float = math.inf
    """What was lowest: the loss of standardised targets, which does not depend on the target's unit, or the monitored
    metric, negative if higher is better."""
    best_step: int = -1
    n_bad: int = 0
    """Evaluations since the last improvement."""
    n_bad_at_lr: int = 0
    """Evaluations since the last improvement or drop of the learning rate."""
    lr: float = 0.0
    seconds: float = 0.0
    train_seconds: float = 0.0
    """`seconds` without evaluations and checkpoints."""
    finished: bool = False


class Trainer:
    """Trains a model with early stopping on a metric of the validation rows, and restores the best weights at the end.

    Args:
        model: trained in place.
        target: task and classes.
        config: settings without open ones (`fill_defaults`).
        train: shuffled training rows.
        validation: validation rows.
        prepare: changes a training batch, for instance to train the rare id.
        l2_scale_I: factor of the ridge of every joint id.
        observer: is told about steps and evaluations.
        history: collects the evaluations.
        checkpoints: folder for checkpoints and the best weights; None writes nothing.
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
        # Summed in place: keeping thousands of small tensors while large ones come and go would fragment the memory.
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
            self.model.train()  # also a model that is new, whose direct networks must not train along
            while not self.state.finished:
                self.run_epoch()
        self._best.restore(self.model, self.state.best_step)
        self.model.eval()
        return self.history

    def _start_model(self) -> None:
        """Show some training rows to a model that initialises its weights from rows."""
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
        """Train on the remaining batches of the epoch, with evaluations in between."""
        epoch, start = divmod(self.state.step, self.train.n_batches)
        began = time.perf_counter()
        for batch in self.train.batches(epoch, start):
            self.train_step(batch)
            last = self.state.step == self.n_steps
            if last or self._is_due():
                self.state.train_seconds += time.perf_counter() - began
                self._evaluate_and_decide(last)
                if self.state.finished:
                    return
                began = time.perf_counter()
        self.state.train_seconds += time.perf_counter() - began

    def train_step(self, batch: Batch) -> None:
        """Train on one batch."""
        if not self.model.training:
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
        self.optimizer.step(batch.inputs)
        self.model.after_step(self.state.step)
        self._loss_sum += loss.detach()
        self._n_losses += 1
        self.observer.on_step(self.state.step, len(batch), float(loss.detach()))

    def _is_due(self) -> bool:
        """Whether it is time for an evaluation."""
        return self.state.step % self.eval_interval == 0

    def _evaluate_and_decide(self, last: bool) -> None:
        state = self.state
        with self._averaged():
            self.model.eval()
            measured = measure(self.model.outputs, self.target, self.validation.chunks())
            if not math.isfinite(measured.standard_loss):
                raise TrainingError(self._advice("the validation loss is not a number"))
            value = self._monitored(measured)
            improved = self._is_better(value)
            if improved:
                self._best.keep(self.model, state.step)
        if improved:
            state.best_loss, state.best_step = value, state.step
            state.n_bad = state.n_bad_at_lr = 0
        else:
            state.n_bad += 1
            state.n_bad_at_lr += 1
        evaluation = self._evaluation(measured.metrics, improved)
        self.history.add(evaluation)
        if state.n_bad_at_lr >= self.config.plateau_patience:
            state.lr *= self.config.plateau_factor
            state.n_bad_at_lr = 0
            if self.config.plateau_restore:
                self._best.restore(self.model, state.best_step)
        state.finished = last or state.n_bad >= self.config.patience
        self._checkpoint()
        self.observer.on_evaluation(evaluation)

    def _evaluation(self, validation: dict[str, float], best: bool) -> Evaluation:
        """The record of an evaluation; the mean of the training losses starts over."""
        train_loss = float(self._loss_sum) / self._n_losses * self.target.loss_unit
        self._loss_sum.zero_()
        self._n_losses = 0
        self.state.seconds = round(time.perf_counter() - self._clock, 3)
        epoch = self.state.step / self.train.n_batches
        return Evaluation(
            step=self.state.step,
            epoch=epoch,
            lr=self.state.lr,
            train_loss=train_loss,
            validation=validation,
            best=best,
            seconds=self.state.seconds,
            rows_per_s=round(epoch * self.train.n_rows / self.state.train_seconds, 1),
            monitor=self.config.monitor,
        )

    def _averaged(self) -> AbstractContextManager[None]:
        """Within the context, the model has the mean of its weights over the last evaluations, if so configured."""
        if self.average is None:
            return nullcontext()
        self.average.update(self.model)
        batches = (batch.to(self.device) for batch in self.train.batches())
        return self.average.applied(self.model, batches)

    def _decay(self) -> float:
        """Factor of the learning rate at this step; with `lr_decay = "linear"` it falls to zero at the last epoch."""
        return 1.0 - (self.state.step - 1) / self.n_steps if self.config.lr_decay == "linear" else 1.0

    @property
    def _monitors_loss(self) -> bool:
        return self.config.monitor in ("loss", loss_name(self.target.task))

    def _monitored(self, measured: Measured) -> float:
        """What should fall: the loss of standardised targets, or the monitored metric, negative if it should rise."""
        if self._monitors_loss:
            return measured.standard_loss
        name = self.config.monitor
        if name not in measured.metrics:
            raise TrainingError(
                f"the validation rows have no {name}, because their targets are all alike; train.monitor is {name!r}. "
                "Hold out more rows, or set train.monitor = 'loss'"
            )
        return -measured.metrics[name] if METRICS[name].higher_is_better else measured.metrics[name]

    def _is_better(self, value: float) -> bool:
        """Whether what should fall fell by enough; `min_delta` is in the unit of the reported metric."""
        unit = self.target.scale if self._monitors_loss else 1.0
        return self.state.best_step < 0 or value < self.state.best_loss - self.config.min_delta / unit / unit

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
        self.checkpoints.save(tensors, state)

    def _restore(self) -> None:
        state = None if self.checkpoints is None else self.checkpoints.load()
        if self.checkpoints is None or state is None:
            return
        tensors = self.checkpoints.tensors()
        self.history[:] = [Evaluation(**values) for values in state.pop("history")]
        self.state = TrainerState(**state)
        try:
            copy_weights(self.model.state_dict(), self.checkpoints.tensors("model/"))
            self.optimizer.load_state(self.checkpoints.tensors("optimizer/"))
            if self.average is not None:
                self.average.load_state(self.checkpoints.tensors("average/"), self.device)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit this model ({str(error).splitlines()[0]}), because data or settings have "
                "changed. Use the same table and settings, or start over with --force"
            ) from error
        torch.set_rng_state(tensors["random"])
        if self.device.type == "cuda" and "random_device" in tensors:
            torch.cuda.set_rng_state(tensors["random_device"], self.device)

    def _guard(self, batch: Batch, loss: torch.Tensor) -> None:
        if not torch.isfinite(loss):
            raise TrainingError(self._advice(f"the loss is {float(loss.detach())}", _suspect(self.model, batch)))

    def _advice(self, what: str, field: str | None = None) -> str:
        where = f" (field {field!r})" if field else ""
        return (
            f"{what} at step {self.state.step}{where}. Lower train.lr (now {self.state.lr:g}) or model.inner_lr, set "
            "train.clip_norm = 1.0, or bin the numerical field (data.numeric = 'quantile')"
        )


def _suspect(model: FieldModel, batch: Batch) -> str | None:
    """The likeliest cause of a diverged loss: the field whose numbers or embeddings are not finite, or largest."""
    layout = model.layout
    for position, field in enumerate(layout.numerical):
        if not torch.isfinite(batch.inputs.numbers_BN[:, position]).all():
            return layout.names[field]
    sizes_F = torch.zeros(layout.n_columns)
    for _, table in model.tables():
        rows_BF = table.weight.detach()[table.rows_of(batch.inputs.ids_BF)].abs().amax(dim=2).cpu()
        sizes_F = torch.maximum(sizes_F, torch.nan_to_num(rows_BF, nan=math.inf).amax(dim=0))
    return layout.names[int(sizes_F.argmax())] if len(sizes_F) else None

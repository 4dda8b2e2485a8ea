"""DeepFM and xDeepFM of DeepCTR-Torch; runs in the environment of `peers_env.sh`, so it does not import fielddep.

    python peers_deepctr.py steps --model xdeepfm --data FILE.npz --d-embed 40 --batch-rows 2048
    python peers_deepctr.py best  --model xdeepfm --data FILE.npz --d-embed 40 --batch-rows 2048

`peers.py` calls it and reads the JSON of its last line. The models have the library's own defaults
(layers, ridge, start) and Adam at its default rate.
"""

from __future__ import annotations

import argparse
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deepctr_torch.callbacks import Callback, EarlyStopping  # type: ignore[import-not-found]  # lives elsewhere
from deepctr_torch.inputs import SparseFeat  # type: ignore[import-not-found]  # the same
from deepctr_torch.models import DeepFM, xDeepFM  # type: ignore[import-not-found]  # the same

MODELS = {"deepfm": DeepFM, "xdeepfm": xDeepFM}
LOSS = "val_binary_crossentropy"


def build(name: str, sizes: np.ndarray, d_embed: int, seed: int) -> Any:
    """A compiled model over categorical fields of these sizes."""
    columns = [SparseFeat(f"f{i}", int(n), embedding_dim=d_embed) for i, n in enumerate(sizes)]
    model = MODELS[name](columns, columns, seed=seed)
    model.compile("adam", "binary_crossentropy", metrics=["binary_crossentropy"])
    return model


def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    """What the library's `fit` does with a batch, without its loader."""
    predicted = model(x).squeeze(-1)
    model.optim.zero_grad()
    loss = model.loss_func(predicted, y, reduction="sum") + model.get_regularization_loss() + model.aux_loss
    loss.item()  # `fit` looks at every loss as well
    loss.backward()
    model.optim.step()


def steps(model: Any, data: Any, batch_rows: int, warm_up: int) -> dict[str, Any]:
    """Seconds of every training step after the warm-up."""
    x, y = torch.from_numpy(data["train_ids"]).float(), torch.from_numpy(data["train_y"])
    model.train()
    seconds = []
    for start in range(0, len(x) - batch_rows + 1, batch_rows):
        batch = slice(start, start + batch_rows)
        clock = time.perf_counter()
        step(model, x[batch], y[batch])
        seconds.append(time.perf_counter() - clock)
    return {"seconds": seconds[warm_up:]}


class Clock(Callback):  # type: ignore[misc]  # the peer has no types
    """Records time and validation loss of every epoch, and stops the training after a time limit."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self.ran_out = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Start."""
        self.start = time.perf_counter()
        self.curve: list[tuple[float, float]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        seconds = time.perf_counter() - self.start
        self.curve.append((seconds, float(logs[LOSS])))
        if seconds > self.limit_s:
            self.ran_out = self.model.stop_training = True


def best(model: Any, data: Any, batch_rows: int, patience: int, max_epochs: int, limit_s: float) -> dict[str, Any]:
    """Train with the library's own `fit`, stopped early on the validation loss or by the time limit."""
    clock = Clock(limit_s)
    stop = EarlyStopping(monitor=LOSS, patience=patience, mode="min")
    columns = {part: list(data[f"{part}_ids"].T) for part in ("train", "validation")}
    model.fit(
        columns["train"],
        data["train_y"],
        batch_size=batch_rows,
        epochs=max_epochs,
        verbose=0,
        validation_data=(columns["validation"], data["validation_y"]),
        callbacks=[clock, stop],
    )
    trained = len(data["train_y"]) * len(clock.curve)
    return {
        "curve": clock.curve,
        "rows_per_s": trained / clock.curve[-1][0],
        "limit_s": limit_s if clock.ran_out else None,
    }


def peak_mb() -> float:
    """Largest resident memory so far."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["steps", "best"])
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--d-embed", type=int, required=True)
    parser.add_argument("--batch-rows", type=int, default=2048)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--max-epochs", type=int, default=50)
    parser.add_argument("--limit-s", type=float, default=math.inf, help="seconds of training at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()  # at import, the library looks for a newer version of itself, which would disturb the timing
    data = dict(np.load(given.data))
    model = build(given.model, data["sizes"], given.d_embed, given.seed)
    if given.what == "steps":
        found = steps(model, data, given.batch_rows, given.warm_up)
    else:
        found = best(model, data, given.batch_rows, given.patience, given.max_epochs, given.limit_s)
    print(json.dumps({**found, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()

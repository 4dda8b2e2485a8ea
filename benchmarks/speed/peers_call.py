"""How `peers.py` runs a program in its own process and passes it its rows."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fielddep.encoding.rows import EncodedRows
from results import HERE

PEERS_PYTHON = HERE.parents[1] / "build" / "peers-env" / "bin" / "python"
DEEPCTR = {"deepctr-deepfm": ("deepfm", 2048), "deepctr-xdeepfm": ("xdeepfm", 2048),
           "deepctr-deepfm-256": ("deepfm", 256), "deepctr-xdeepfm-256": ("xdeepfm", 256)}  # fmt: skip
"""Model and batch; 256 is the default of DeepCTR-Torch's `fit`, 2048 the batch of all other programs here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caller:
    """Runs one program in its own process.

    Attributes:
        python: interpreter of the peers' environment.
        threads: threads of every program.
        limit_s: most seconds of a training of DeepCTR-Torch.
    """

    python: Path
    threads: int
    limit_s: float

    def __call__(self, what: str, program: str, data: Path, table: str | None, d_embed: int, seed: int = 0) -> Any:
        """What the program printed; None if it did not finish, for instance because it ran out of memory."""
        if program in DEEPCTR:
            model, batch_rows = DEEPCTR[program]
            command = [str(self.python), str(HERE / "peers_deepctr.py"), what, "--model", model]
            command += ["--batch-rows", str(batch_rows), "--limit-s", str(self.limit_s)]
        else:
            command = [sys.executable, str(HERE / "peers_local.py"), what, program]
            command += [] if table is None else ["--table", table]
        command += ["--data", str(data), "--d-embed", str(d_embed), "--seed", str(seed), "--threads", str(self.threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(f"{program} {what}: ended with {done.returncode}, skipped", flush=True)
            return None
        return json.loads(done.stdout.splitlines()[-1])


def save_rows(path: Path, parts: dict[str, EncodedRows]) -> Path:
    """Local ids and targets, as the peers take them."""
    arrays: dict[str, np.ndarray] = {"sizes": np.array(parts["train"].layout.n_ids)}
    for name, part in parts.items():
        assert part.target_R is not None
        arrays |= {f"{name}_ids": part.ids_RF, f"{name}_y": part.target_R}
    np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes the arrays for its option
    return path

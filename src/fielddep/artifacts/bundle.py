"""Bundle: the release format of a model. A folder of four files, no pickle, every byte accounted for.

    manifest.json         format, library version, model, settings, size and sha256 of the other files and of itself
    schema.json           schema, numeric scales and bins
    vocabulary.arrow      one row a value: field, value, id, count
    weights.safetensors   the model's weights

Equal models give equal bytes: nothing of time or place is written.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.errors import BundleError, FieldDepError, UserError
from fielddep.nn import MODELS, build_model
from fielddep.nn.model import FieldModel
from fielddep.tables.files import content_checksum, file_damage, file_facts, write_json
from fielddep.training.fit import Trained, check_device

FORMAT = 1
MANIFEST = "manifest.json"
SCHEMA = "schema.json"
VOCABULARY = "vocabulary.arrow"
WEIGHTS = "weights.safetensors"
FILES = (SCHEMA, VOCABULARY, WEIGHTS)
_READ_ERRORS = (OSError, SafetensorError, pl.exceptions.PolarsError)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A trained model with all that is needed to use it anywhere."""

    config: Config
    encoder: Encoder
    model: FieldModel

    @classmethod
    def of(cls, trained: Trained) -> Bundle:
        """The bundle of a trained network.

        Raises:
            BundleError: for trees, which have no release format yet.
        """
        if not isinstance(trained.model, FieldModel):
            name = trained.prepared.config.model.name
            raise BundleError(f"a bundle holds a network; {name} can be compared with, but not saved")
        return cls(config=trained.prepared.config, encoder=trained.prepared.encoder, model=trained.model)

    def save(self, folder: str | Path) -> None:
        """Write the folder; a bundle that is there is replaced only once the new one is whole.

        Raises:
            BundleError: when it cannot be written, or the folder holds anything but a bundle; what was there before
                is untouched.
        """
        folder = Path(folder)
        _recover(folder)
        _refuse_foreign(folder)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        except OSError as error:
            raise BundleError(f"cannot write bundle {folder}: {error.strerror or error}") from error
        try:
            self._write(fresh)
            _swap(fresh, folder)
        except (OSError, UserError, SafetensorError, pl.exceptions.PolarsError) as error:
            raise BundleError(f"cannot write bundle {folder}: {error}; what was there before is untouched") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _write(self, folder: Path) -> None:
        folder.chmod(0o755)
        write_json(folder / SCHEMA, self.encoder.to_json())
        self.encoder.vocabulary_frame().write_ipc(folder / VOCABULARY)
        weights = {k: v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
        save_file(weights, folder / WEIGHTS)
        for name in FILES:
            (folder / name).chmod(0o644)  # safetensors writes files that nobody else may read
        manifest = {
            "format": FORMAT,
            "library": importlib.metadata.version("fielddep"),
            "model": self.config.model.name,
            "config": self.config.to_dict(),
            "files": {name: file_facts(folder / name) for name in FILES},
        }
        write_json(folder / MANIFEST, {**manifest, "sha256": content_checksum(manifest)})

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Bundle:
        """Read a bundle and check every file of it.

        Raises:
            BundleError: for a missing, cut-off, altered or newer-format file, naming it.
            ConfigError: for a device that is not there.
        """
        check_device(device)
        folder = Path(folder)
        if not folder.exists() and _aside(folder).exists():
            folder = _aside(folder)  # a kill in the middle of `_swap`, or another process is in it; `save` puts it back
        manifest = _read_manifest(folder)
        for name in FILES:
            if damage := file_damage(folder / name, manifest["files"][name]):
                raise BundleError(damage)
        try:
            return cls._build(folder, manifest, device)
        except (FieldDepError, LookupError, TypeError, RuntimeError, ValueError, *_READ_ERRORS) as error:
            raise BundleError(f"bundle {folder} is whole but cannot be used: {error}") from error

    @classmethod
    def _build(cls, folder: Path, manifest: dict[str, Any], device: str) -> Bundle:
        config = Config.from_dict(manifest["config"])
        state = json.loads((folder / SCHEMA).read_text("utf-8"))
        encoder = Encoder.from_parts(state, pl.read_ipc(folder / VOCABULARY))
        target = encoder.schema.target
        if target is None:
            raise BundleError(f"{SCHEMA} names no target")
        regression = target.task == "regression"
        model = build_model(encoder.layout, target.n_outputs, config.model, regression=regression)
        model.load_state_dict(load_file(folder / WEIGHTS))
        return cls(config=config, encoder=encoder, model=model.to(torch.device(device)).eval())


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise BundleError(f"no bundle at {folder}: expected a folder with {MANIFEST}")
    if not path.is_file():
        raise BundleError(f"{folder} is no bundle: it lacks {MANIFEST}")
    try:
        manifest = json.loads(path.read_text("utf-8"))
        version = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{path} is cut off or altered ({error}); save the model again") from None
    if not isinstance(version, int) or version > FORMAT:
        raise BundleError(
            f"{path} has format {version}, this fielddep reads up to {FORMAT}; upgrade fielddep to load it"
        )
    if manifest.get("sha256") != content_checksum(manifest):
        raise BundleError(f"{path} was altered since it was saved (its checksum differs); copy it again")
    if manifest["model"] not in MODELS:
        raise BundleError(f"{path} holds a model {manifest['model']!r}; this fielddep knows {', '.join(MODELS)}")
    return manifest  # type: ignore[no-any-return]  # JSON; the checksum says that it is what `save` wrote


def _aside(folder: Path) -> Path:
    """Where a bundle lies while another takes its place."""
    return folder.with_name(f".{folder.name}.old")


def _recover(folder: Path) -> None:
    """Bring back a bundle that a kill in the middle of `_swap` left aside."""
    if not folder.exists() and _aside(folder).exists():
        _aside(folder).rename(folder)


def _swap(fresh: Path, folder: Path) -> None:
    """Put the new folder in the old one's place."""
    if not folder.exists():
        fresh.rename(folder)
        return
    aside = _aside(folder)
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    try:
        fresh.rename(folder)
    except OSError:
        aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _refuse_foreign(folder: Path) -> None:
    """Saving replaces a folder, so one that holds anything but a bundle is refused: it may be a user's work."""
    if not folder.exists():
        return
    others = sorted({path.name for path in folder.iterdir()} - {MANIFEST, *FILES}) if folder.is_dir() else [folder.name]
    if others:
        raise BundleError(
            f"cannot write bundle {folder}: it is there and holds other things ({', '.join(others[:3])}), which saving "
            "would remove; choose a new folder"
        )

"""Bundle: the release format of a model. A folder of up to six files without pickle, each with its size and checksum.

    manifest.json         format, library version, model, settings, size and sha256 of the other files and of itself
    schema.json           schema, numeric scales and bins
    vocabulary.arrow      one row per value: field, value, id, count
    evidence.safetensors  training rows and sums of targets per joint value, if the model uses evidence
    weights.safetensors   the model's weights
    trees.json            the trees of a blend, as LightGBM writes them

Equal models give equal bytes: no time, user or path is written.
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

from fielddep.config.mdl import MDLConfig
from fielddep.config.settings import Config
from fielddep.encoding.encoder import Encoder
from fielddep.errors import BundleError, FieldDepError, UserError
from fielddep.nn import MODELS, build_model
from fielddep.nn.blend import Blend
from fielddep.nn.model import FieldModel
from fielddep.store.format import CELLS, SCHEMA, VOCABULARY, encoder_files, load_encoder, save_encoder
from fielddep.tables.files import MANIFEST, ManifestFormat, file_facts, write_json
from fielddep.training.blend import load_trees
from fielddep.training.fit import Trained, check_device
from fielddep.training.trees import check_installed

FORMAT = 1
WEIGHTS = "weights.safetensors"
TREES = "trees.json"
FILES = (SCHEMA, VOCABULARY, CELLS, WEIGHTS, TREES)
"""All but the manifest."""
OPTIONAL = (CELLS, TREES)
"""A model without evidence has no cells, and only a blend has trees."""
_MANIFEST = ManifestFormat(what="bundle", version=FORMAT, error=BundleError)
_FILE_ERRORS = (OSError, SafetensorError, pl.exceptions.PolarsError)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A trained model with everything needed to use it anywhere."""

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
            raise BundleError(f"a bundle holds a network; {name} is for comparisons and cannot be saved")
        return cls(config=trained.prepared.config, encoder=trained.prepared.encoder, model=trained.model)

    def save(self, folder: str | Path) -> None:
        """Write the folder; an existing bundle is replaced only once the new one is complete.

        Raises:
            BundleError: it cannot be written, or the folder holds anything but a bundle; what was there before is
                untouched.
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
        except (UserError, *_FILE_ERRORS) as error:
            raise BundleError(f"cannot write bundle {folder}: {error}; what was there before is untouched") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _write(self, folder: Path) -> None:
        folder.chmod(0o755)
        save_encoder(folder, self.encoder)
        weights = {k: v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
        save_file(weights, folder / WEIGHTS)
        (folder / WEIGHTS).chmod(0o644)  # safetensors lets nobody but the owner read it
        content = {
            "library": importlib.metadata.version("fielddep"),
            "model": self.config.model.name,
            "config": self.config.to_dict(),
        }
        names = [*encoder_files(self.encoder), WEIGHTS]
        if isinstance(self.model, Blend):
            write_json(folder / TREES, [trees.text for trees in self.model.trees])
            names.append(TREES)
        _MANIFEST.write(folder, content, {name: file_facts(folder / name) for name in names})

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Bundle:
        """Read a bundle and verify all of its files.

        Raises:
            BundleError: names a file that is missing, cut off, altered or of a newer format.
            ConfigError: there is no such device.
        """
        check_device(device)
        folder = Path(folder)
        if not folder.exists() and aside(folder).exists():
            folder = aside(folder)  # `_swap` was killed or is running in another process; `save` puts it back
        manifest = _MANIFEST.read(folder)
        if manifest["model"] not in MODELS:
            known = ", ".join(MODELS)
            raise BundleError(f"{folder / MANIFEST} holds a model {manifest['model']!r}; this fielddep knows {known}")
        present = [name for name in FILES if name not in OPTIONAL or name in manifest["files"]]
        _MANIFEST.check_files(folder, manifest, present)
        check_installed(manifest["model"])
        try:
            return cls._build(folder, manifest, device)
        except (FieldDepError, LookupError, TypeError, RuntimeError, ValueError, *_FILE_ERRORS) as error:
            raise BundleError(f"bundle {folder} is intact but cannot be used: {error}") from error

    @classmethod
    def _build(cls, folder: Path, manifest: dict[str, Any], device: str) -> Bundle:
        config = Config.from_dict(_completed(manifest["config"]))
        encoder = load_encoder(folder)
        target = encoder.schema.target
        if target is None:
            raise BundleError(f"{SCHEMA} names no target")
        regression = target.task == "regression"
        model = build_model(encoder.layout, target.n_outputs, config.model, regression=regression)
        model.load_state_dict(load_file(folder / WEIGHTS))
        if isinstance(model, Blend):
            texts = json.loads((folder / TREES).read_text("utf-8"))
            model.trees = load_trees(model, texts, encoder, config)
        return cls(config=config, encoder=encoder, model=model.to(torch.device(device)).eval())


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a bundle, also those that it is too old to name, where the default is now another one."""
    model = config.get("model", {})
    earlier = {"inner_step": "fixed"} if model.get("name", MDLConfig.name) == MDLConfig.name else {}
    return {**config, "model": {**earlier, **model}}


def aside(folder: Path) -> Path:
    """Where a bundle is kept while another takes its place."""
    return folder.with_name(f".{folder.name}.old")


def _recover(folder: Path) -> None:
    """Bring back a bundle that a kill in the middle of `_swap` left aside."""
    if not folder.exists() and aside(folder).exists():
        aside(folder).rename(folder)


def _swap(fresh: Path, folder: Path) -> None:
    """Put the new folder in place of the old one."""
    if not folder.exists():
        fresh.rename(folder)
        return
    old = aside(folder)
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    try:
        fresh.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds anything but a bundle: saving would remove it, and it may be a user's work."""
    if not folder.exists():
        return
    others = sorted({path.name for path in folder.iterdir()} - {MANIFEST, *FILES}) if folder.is_dir() else [folder.name]
    if others:
        raise BundleError(
            f"cannot write bundle {folder}: saving would remove what it holds ({', '.join(others[:3])}). Choose a new "
            "folder"
        )

"""The wheel: what is in it, and that it fits and predicts from a clean folder.

Libraries that the package needs are those of the machine. What it does not catch: a dependency that pyproject.toml does
not name, and wheels of other systems.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

from tests.conftest import small_frame

ROOT = Path(__file__).parents[2]
QUICK = ("train.max_epochs=2", "train.threads=1", "model.d_embed=4", "data.crosses=none")
MAX_SECONDS = 900


def run(*words: object, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("COV_", "PYTHON"))}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=folder, env=env | variables, capture_output=True, text=True, timeout=MAX_SECONDS)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source, built in a folder of its own: `build/` may be in use."""
    folder = tmp_path_factory.mktemp("wheel")
    settings = f"--config-settings=build-dir={folder / 'build'}"
    done = run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, settings, ROOT, folder=folder)
    if "build dependencies did not run successfully" in done.stderr:
        pytest.skip(f"the build requirements of pyproject.toml cannot be installed: {done.stderr.splitlines()[-1]}")
    if "No module named pip" in done.stderr:
        pytest.skip("pip is not installed in this environment")
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel."""
    folder = tmp_path_factory.mktemp("installed")
    done = run("-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, wheel, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def run_installed(installed: Path, folder: Path, *words: object) -> str:
    """What a Python prints that has the wheel, the libraries of the machine, and no editable installation."""
    libraries = os.pathsep.join([str(installed), *dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))])
    # -S: an editable installation is a hook of the module site, and would win over PYTHONPATH.
    done = run("-S", *words, folder=folder, PYTHONPATH=libraries, FIELDDEP_KERNELS="native", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    package, metadata = sorted({name.split("/")[0] for name in names})
    assert package == "fielddep" and metadata.endswith(".dist-info")
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert {"fielddep/py.typed", "fielddep/report/page.css", "fielddep/report/page.js"} <= set(names)
    assert not [name for name in names if "csrc" in name or "/tests/" in name or "__pycache__" in name]
    (kernels,) = (name for name in names if name.endswith((".so", ".pyd")))
    assert kernels.startswith("fielddep/_native.")
    assert sysconfig.get_platform().replace("-", "_").replace(".", "_") in wheel.name


def test_the_installed_wheel_is_what_is_imported(installed: Path, tmp_path: Path) -> None:
    code = "import fielddep, fielddep._native as native; print(fielddep.__file__); print(native.__file__)"
    files = run_installed(installed, tmp_path, "-c", code).splitlines()
    assert len(files) == 2 and all(Path(file).is_relative_to(installed) for file in files)


def test_it_fits_reports_and_predicts(installed: Path, tmp_path: Path) -> None:
    frame = small_frame()
    frame.write_csv(tmp_path / "table.csv")
    frame.drop("good").write_csv(tmp_path / "new.csv")
    settings = [word for text in QUICK for word in ("--set", text)]
    fit = ("-m", "fielddep", "fit", "table.csv", "--target", "good", "--out", "run", "--quiet", *settings)
    run_installed(installed, tmp_path, *fit)
    assert (tmp_path / "run" / "report.html").is_file()
    run_installed(installed, tmp_path, "-m", "fielddep", "predict", "run", "new.csv", "--out", "predictions.csv")
    assert len(pl.read_csv(tmp_path / "predictions.csv")) == len(frame)

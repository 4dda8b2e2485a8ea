"""The layout: who may import whom, and how large files and functions may be.

Imports go one way: a file may import its own folder and the folders to its left in `ORDER`. What this does not catch:
modules imported by a name in a string.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from tests.conftest import SLOW

SOURCE = Path(__file__).parents[1] / "src" / "fielddep"

# Each line may import its own folder and the lines above it.
ORDER = (
    ("errors", "native", "observer", "quantiles", "wording"),
    ("config",),
    ("tables",),
    ("encoding",),
    ("store",),
    ("nn.kernels",),
    ("nn",),
    ("nn.baselines",),
    ("training",),
    ("artifacts",),
    ("explain",),
    ("report",),
    ("sklearn_api", "datasets", "experiments"),
    ("cli",),
    ("__init__", "__main__"),
)
LEVELS = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
REGISTRY = "nn"  # nn/__init__ knows every model, so it alone imports nn.baselines
# Folders that may import less than everything to their left.
NETWORK = {"errors", "native", "quantiles", "wording", "config", "encoding.rows", "encoding.target", "nn"}
LAST_OF_DATASETS = "store"
# Packages that load slowly or are optional, and the only places that may import them.
OUTSIDE = {
    "rich": {"cli"},
    "typer": {"cli"},
    "click": {"cli"},
    "matplotlib": {"explain.plots", "explain.heat_maps", "experiments.ablation.tables"},
    "plotly": {"report.page"},
}
WITHOUT_TORCH = {"errors", "native", "observer", "wording", "config", "tables"}

MAX_LINES = 400


def name_of(path: Path) -> str:
    """Of src/fielddep/nn/mdl.py: nn.mdl; of a folder's __init__: the folder."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def folder_of(module: str) -> str:
    """The longest entry of the order that contains the module."""
    return max((f for f in LEVELS if module == f or module.startswith(f"{f}.")), key=len)


def _runtime(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from _runtime(node)


@cache
def imports(module: str) -> tuple[str, ...]:
    """Full names of everything that the module imports, of the library and of others."""
    found: list[str] = []
    for node in _runtime(modules()[module]):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: relative imports are not used"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name.removeprefix("fielddep.") in modules() else str(node.module) for name in names]
    return tuple(found)


@cache
def own_imports(module: str) -> tuple[str, ...]:
    """Modules of the library that the module imports."""
    found = [name.removeprefix("fielddep.") for name in imports(module) if name.startswith("fielddep.")]
    found += ["__init__" for name in imports(module) if name == "fielddep"]
    return tuple(name for name in found if name != module)


def may_import(module: str, other: str) -> bool:
    """Whether the order lets one module of the library import another."""
    folder, target = folder_of(module), folder_of(other)
    if (
        folder == target
        or (module, target) == (REGISTRY, "nn.baselines")
        or (folder, target) == ("experiments", "datasets")
    ):
        return True
    if folder.startswith("nn") and not within(other, NETWORK):
        return False
    if folder == "datasets" and LEVELS[target] > LEVELS[LAST_OF_DATASETS]:
        return False
    return LEVELS[target] < LEVELS[folder] or LEVELS[folder] == LEVELS[target] == 0


def within(module: str, places: set[str]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def forbidden(module: str) -> Iterator[str]:
    """Imports of the module that the rules do not allow."""
    yield from (f"{module} -> {other}" for other in own_imports(module) if not may_import(module, other))
    for package in {name.split(".")[0] for name in imports(module)}:
        if not within(module, OUTSIDE.get(package, {module})) or (package == "torch" and within(module, WITHOUT_TORCH)):
            yield f"{module} -> {package}"


def test_imports_go_one_way() -> None:
    assert not sorted({entry for module in modules() for entry in forbidden(module)})


def test_no_cycle_inside_a_folder() -> None:
    def reached(module: str) -> set[str]:
        found: set[str] = set()
        todo = [module]
        while todo:
            todo += (new := {m for m in own_imports(todo.pop()) if folder_of(m) == folder_of(module)} - found)
            found |= new
        return found

    assert not sorted(module for module in modules() if module in reached(module))


def test_no_file_is_long() -> None:
    lines = {name_of(path): path.read_text("utf-8").count("\n") for path in SOURCE.rglob("*.py")}
    assert not sorted(name for name, n in lines.items() if n > MAX_LINES)


def test_functions_are_small() -> None:
    sizes = [
        node.end_lineno - node.lineno + 1
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    assert np.median(sizes) <= 10
    assert np.quantile(sizes, 0.9) <= 24


def test_what_is_marked_slow_exists() -> None:
    root = SOURCE.parents[1]
    for entry in SLOW:
        path, _, test = entry.partition("::")
        assert (root / path).exists(), entry
        assert not test or f"def {test}" in (root / path).read_text("utf-8"), entry

"""Public names: complete, fast to import, with helpful errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fielddep


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_is_light():
    heavy = "{'torch', 'polars', 'numpy', 'sklearn', 'pyarrow', 'rich', 'pandas', 'matplotlib'}"
    assert run(f"import sys, fielddep; print(sorted({heavy} & set(sys.modules)))") == "[]\n"


def test_settings_and_errors_need_no_torch():
    code = "import sys; from fielddep import Config, UserError; Config(); print('torch' in sys.modules)"
    assert run(code) == "False\n"


def test_every_public_name_is_there():
    assert sorted(fielddep.__all__) == fielddep.__all__
    for name in fielddep.__all__:
        assert getattr(fielddep, name).__name__ == name
    assert set(dir(fielddep)) == {*fielddep.__all__, "__version__"}


def test_star_import():
    names: dict[str, object] = {}
    exec("from fielddep import *", names)
    assert set(fielddep.__all__) <= set(names)


def test_version_is_that_of_the_package():
    from importlib.metadata import version

    assert fielddep.__version__ == version("fielddep")


def test_unknown_names():
    with pytest.raises(AttributeError, match="'MDLClasifier'"):
        _ = fielddep.MDLClasifier


def test_user_errors_are_value_errors():
    assert issubclass(fielddep.UserError, ValueError)
    assert issubclass(fielddep.UserError, fielddep.FieldDepError)

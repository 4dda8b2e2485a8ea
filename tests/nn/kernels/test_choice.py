"""Which form does the work: the environment, the block, and what cannot be compiled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from fielddep.encoding.rows import Inputs
from fielddep.errors import ConfigError
from fielddep.native import _load
from fielddep.nn import kernels
from fielddep.nn.kernels.steps import Rule, advance
from fielddep.nn.mdl import MDL
from tests.conftest import double
from tests.helpers import raises
from tests.nn.kernels.agreement import Case, gradients

CASE = Case(n_ids=(9, 30, 4), d_embed=6, n_rows=50, settings={})
needs_native = pytest.mark.skipif(kernels.native() is None, reason="no compiled kernels in this installation")


def test_the_environment_forces_the_plain_form(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, "plain")
    assert kernels.native() is None
    assert not kernels.usable(torch.ones(1))
    assert kernels.name() == "plain"


def test_a_block_overrules_the_environment(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, "native")
    with kernels.forced("plain"):
        assert kernels.choice() == "plain"
    assert kernels.choice() == "native"


def test_an_unknown_choice_is_refused(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, "fast")
    with raises(ConfigError, "auto", "plain", "native", "'fast'"):
        kernels.native()


@needs_native
def test_native_means_that_the_compiled_module_does_the_work(monkeypatch):
    """A module that is not found where it is looked for would fall back to the plain forms without a word."""
    monkeypatch.setenv(kernels.VARIABLE, "native")
    module = kernels.native()
    assert module is not None and module.__name__ == "fielddep._native"
    assert kernels.name() in kernels.INSTRUCTION_SETS
    model, batch = CASE.model(), CASE.batch()
    expected = model(batch.inputs)

    def refuse(*_):
        raise AssertionError("the plain form was called")

    monkeypatch.setattr(MDL, "embed", refuse)
    assert torch.equal(model(batch.inputs), expected)


def test_without_the_compiled_module_the_plain_form_works(monkeypatch):
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    monkeypatch.setattr("fielddep.native._load", lambda: None)
    assert kernels.name() == "plain"
    found = gradients(CASE.model(), CASE.batch(), "auto")
    assert found["logits"].isfinite().all()
    with raises(ConfigError, "FIELDDEP_KERNELS=native"), kernels.forced("native"):
        kernels.native()


@needs_native
def test_float64_and_other_devices_take_the_plain_form():
    assert kernels.usable(torch.ones(1), torch.ones(1, dtype=torch.int64))
    assert not kernels.usable(torch.ones(1), torch.ones(1, dtype=torch.float64))
    assert not kernels.usable(torch.ones(1, device="meta"))
    model, batch = CASE.model().double(), CASE.batch()
    assert model(double(batch.inputs)).dtype == torch.float64


@needs_native
def test_no_tensor_is_asked_for_its_memory_in_python(monkeypatch):
    # An interrupt within `Tensor.__dlpack__`, called by the compiled module, would be lost: training would go on.
    expected = gradients(CASE.model(), CASE.batch(), "native")

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.Tensor, "__dlpack__", interrupt)
    found = gradients(CASE.model(), CASE.batch(), "native")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    rule = Rule(kind="adagrad", lr=0.1, shrink=1.0, epsilon=1e-10, betas=(0.9, 0.999))
    weight = torch.ones(3)
    advance(rule, weight, torch.ones(3), {"sum": torch.zeros(3)})
    torch.testing.assert_close(weight, torch.full((3,), 0.9))


class FromTensors(torch.nn.Module):
    """A model as tracing wants it: a tuple with names would become a plain one."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(Inputs(*tensors))


@needs_native
def test_a_traced_model_holds_plain_operations_only():
    model, batch = CASE.model().eval(), CASE.batch()
    with torch.no_grad():
        traced = torch.jit.trace(FromTensors(model), tuple(batch.inputs[:2]))
        other = CASE.batch(seed=1)
        expected = model(other.inputs)
        torch.testing.assert_close(traced(*other.inputs[:2]), expected, atol=1e-4, rtol=1e-4)


def test_an_unknown_instruction_set_is_refused(monkeypatch):
    monkeypatch.setenv(kernels.SET_VARIABLE, "AVX512")
    with raises(ConfigError, "avx512", "avx2", "baseline", "'AVX512'"):
        _load.__wrapped__()


@needs_native
def test_transformed_models_take_the_plain_form():
    model, batch = CASE.model(), CASE.batch()

    def loss(phi_PDD):
        weights = {"interactions.phi_PDD": phi_PDD}
        return torch.func.functional_call(model, weights, (batch.inputs,)).square().sum()

    gradient = torch.func.grad(loss)(model.interactions.phi_PDD.detach())
    assert gradient.isfinite().all() and gradient.abs().sum() > 0


@needs_native
@pytest.mark.parametrize("instruction_set", ["avx512", "avx2", "baseline"])
def test_every_instruction_set_agrees(instruction_set):
    """The choice is made once a process, so each has its own."""
    code = (
        "from fielddep.nn import kernels\n"
        "from tests.nn.kernels.agreement import Case, assert_agree, gradients\n"
        "print(kernels.name())\n"
        "for k, settings in ((13, {}), (40, {'mu_update_from': 'old'}), (6, {'embedding_input': True})):\n"
        "    case = Case(n_ids=(9, 300, 4, 2, 7, 50), d_embed=k, n_rows=150, numerical=(3,), settings=settings)\n"
        "    model, batch = case.model(), case.batch()\n"
        "    assert_agree(gradients(model, batch, 'native'), gradients(model, batch, 'plain'))\n"
    )
    environment = {**os.environ, "FIELDDEP_INSTRUCTION_SET": instruction_set}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() != instruction_set:
        pytest.skip(f"this processor has no {instruction_set}")

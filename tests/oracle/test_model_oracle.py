"""The whole forward pass against a row-by-row form, written from the specification."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.config.mdl import MDLConfig
from fielddep.nn.interactions import BilinearInteractions
from fielddep.nn.mdl import MDL
from tests.conftest import double, random_table
from tests.oracle.test_refinement_oracle import oracle


def test_bilinear_products_pair_by_pair():
    layer = BilinearInteractions(4, 3).double()
    e_BFD = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0)).double()
    found = layer(e_BFD)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    for p, (i, j) in enumerate(pairs):
        phi = layer.phi_PDD[p].T
        for row in range(5):
            expected = e_BFD[row, i] @ phi @ e_BFD[row, j]
            torch.testing.assert_close(found[row, p], expected, atol=1e-12, rtol=1e-12)


def test_identity_start_gives_plain_products():
    layer = BilinearInteractions(3, 4, init="identity")
    e_BFD = torch.randn(2, 3, 4)
    torch.testing.assert_close(layer(e_BFD)[:, 1], (e_BFD[:, 0] * e_BFD[:, 2]).sum(dim=1))


@pytest.mark.parametrize("product_output", [False, True])
def test_logit_row_by_row(layout, product_output):
    config = MDLConfig(d_embed=3, n_inner_steps=2, inner_lr=0.5, inner_step="fixed", sparsity=4.0, hidden=(6,),
                         batch_norm="none", embedding_init="normal", embedding_init_scale=0.5,
                         product_output=product_output)  # fmt: skip
    torch.manual_seed(0)
    model = MDL(layout, 1, config).double().eval()
    with torch.no_grad():
        model.first_order.weight.normal_()
        model.bias.fill_(0.3)
    batch = random_table(layout, 6).batch(slice(None))
    found = model(double(batch.inputs))
    offsets = layout.offsets
    for row in range(6):
        e = []
        first = 0.0
        for f in range(layout.n_fields):
            index = int(batch.inputs.ids_BF[row, f])
            assert offsets[f] <= index < offsets[f] + layout.n_ids[f]
            factor = float(batch.inputs.numbers_BN[row, 0]) if f == 2 else 1.0
            e.append((model.embedding.weight[index].detach().numpy() * factor).tolist())
            first += float(model.first_order.weight.detach()[index, 0]) * factor
        w, mu = oracle(e, model.refinement.weight.tolist(), 2, 0.5, 4.0)
        inputs = []
        p = 0
        for i in range(4):
            for j in range(i + 1, 4):
                phi = model.interactions.phi_PDD[p].detach().numpy().T
                inputs.append(np.array(e[i]) @ phi @ np.array(e[j]))
                p += 1
        products = sum(inputs)
        inputs += [mu[j] / 4.0 * w[i][j] for i in range(4) for j in range(4) if i != j]
        a, _, b = model.mlp
        hidden = np.maximum(a.weight.detach().numpy() @ np.array(inputs) + a.bias.detach().numpy(), 0)
        logit = (b.weight.detach().numpy() @ hidden + b.bias.detach().numpy())[0] + 0.3 + first
        logit += products if product_output else 0.0
        assert abs(float(found[row, 0]) - logit) < 1e-10

"""How many floating-point operations a row needs.

Per row, forward, with m fields, k = d_embed, T inner steps, P = m(m-1)/2 pairs; a product and a sum are two operations:

    interact   P (2 k^2 + 2 k)                      every e_i^T Phi_ij e_j
    refine     2 k m^2 + (T + 1) 2 m^3 + 6 T m^2    S = E^T E once, one product S W per step, the updates of W and mu;
               (T + 1) 4 k m^2 + 6 T m^2            or the direct form E W, E^T (E W), whichever is less
    MLP        2 (d_in h + h h + h)                 d_in = P + m(m-1) inputs, two layers of width h

A training step costs three times that, because the backward pass forms a product for the gradient of each factor, plus
6 operations of the optimizer for each of the m (k + 1) table entries of a row.

This counts what the formulas need for a single row. A program that shares work between rows with equal values does
less, so its rate by this count may exceed that of a matrix product.
"""

from __future__ import annotations

from shapes import Shape

HIDDEN = 100
BACKWARD = 3
"""Cost of a training step in forward passes."""
PARTS = ("gather", "refine", "interact", "mlp", "optimiser", "other")


def forward_flops(shape: Shape) -> dict[str, float]:
    """Operations of a row's forward pass, part by part."""
    m, k, steps = len(shape.fields), shape.d_embed, shape.n_inner_steps
    n_pairs = m * (m - 1) // 2
    gram = 2 * k * m**2 + (steps + 1) * 2 * m**3
    direct = (steps + 1) * 4 * k * m**2
    d_in = n_pairs + m * (m - 1)
    return {
        "interact": n_pairs * (2 * k**2 + 2 * k),
        "refine": min(gram, direct) + 6 * steps * m**2,
        "mlp": 2 * (d_in * HIDDEN + HIDDEN * HIDDEN + HIDDEN),
    }


def training_flops(shape: Shape) -> dict[str, float]:
    """Operations of a row in a training step, part by part; gathering and the rest do no arithmetic."""
    found = {part: BACKWARD * n for part, n in forward_flops(shape).items()}
    found["optimiser"] = 6 * len(shape.fields) * (shape.d_embed + 1)
    return {part: float(found.get(part, 0)) for part in PARTS}

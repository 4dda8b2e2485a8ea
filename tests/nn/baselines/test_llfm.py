"""K-means on rows of ids, against rows written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fielddep.nn.baselines.llfm import distances, kmeans


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """60 rows of 4 fields, 20 each of three kinds; the last field is a number, in which rows of a kind differ."""
    kinds = np.repeat([0, 1, 2], 20)
    ids = np.stack([kinds, 5 + kinds, 10 + kinds, np.full(60, 15)], axis=1)
    factors = np.ones((60, 4))
    factors[:, 3] = 0.01 * np.random.default_rng(0).normal(size=60)
    return torch.from_numpy(ids), torch.from_numpy(factors)


def dense(ids: torch.Tensor, numbers: torch.Tensor) -> np.ndarray:
    x = np.zeros((len(ids), 16))
    np.put_along_axis(x, ids.numpy(), numbers.numpy(), axis=1)
    return x


def test_distances(rows):
    centres = np.random.default_rng(1).normal(size=(16, 5))
    expected = ((dense(*rows)[:, :, None] - centres) ** 2).sum(axis=1)
    np.testing.assert_allclose(distances(*rows, torch.from_numpy(centres)), expected)


def test_finds_the_groups_and_their_means(rows):
    torch.manual_seed(0)
    centres = kmeans(*rows, 16, 3)  # three first centres of different kinds: rows of one kind are nearly equal
    nearest = distances(*rows, centres).argmin(dim=1).numpy()
    assert [len(set(nearest[group : group + 20])) for group in (0, 20, 40)] == [1, 1, 1]
    assert len(set(nearest)) == 3
    for group in (0, 20, 40):
        mean = dense(*rows)[group : group + 20].mean(axis=0)
        np.testing.assert_allclose(centres[:, nearest[group]].numpy(), mean, atol=1e-12)


def test_every_centre_is_the_mean_of_its_rows(rows):
    torch.manual_seed(1)
    centres = kmeans(*rows, 16, 6)
    nearest = distances(*rows, centres).argmin(dim=1).numpy()
    for k in set(nearest):
        np.testing.assert_allclose(centres[:, k].numpy(), dense(*rows)[nearest == k].mean(axis=0), atol=1e-12)


def test_same_random_state_same_centres(rows):
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(kmeans(*rows, 16, 4))
    assert torch.equal(*found)


def test_fewer_different_rows_than_centres():
    ids = torch.tensor([[0, 2], [0, 2], [1, 3]])
    centres = kmeans(ids, torch.ones(3, 2), 4, 5)
    assert torch.isfinite(centres).all()
    assert distances(ids, torch.ones(3, 2), centres).amin(dim=1).tolist() == [0.0, 0.0, 0.0]

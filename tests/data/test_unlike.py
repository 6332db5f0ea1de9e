"""Classes that mean different things, and few labels."""

from __future__ import annotations

import numpy as np
import pytest

from fedgkd.data.federation import Federation
from fedgkd.data.graph import UNLABELLED
from fedgkd.data.partition import partition
from fedgkd.data.synthetic import synthetic_graph
from fedgkd.data.unlike import with_concepts, with_few_labels
from fedgkd.errors import SettingError


def federation(clients: int = 5) -> Federation:
    return partition(synthetic_graph(num_nodes=200, num_classes=4), clients)


def test_every_group_shifts_the_classes_by_its_number() -> None:
    before = federation()
    after = with_concepts(before, 3)
    assert after.groups == ("convention 0", "convention 1", "convention 2", "convention 0", "convention 1")
    for client, (ours, theirs) in enumerate(zip(after.graphs, before.graphs, strict=True)):
        known = theirs.y != UNLABELLED
        np.testing.assert_array_equal(ours.y[known], (theirs.y[known] + client % 3) % 4)
        np.testing.assert_array_equal(ours.y[~known], UNLABELLED)
        np.testing.assert_array_equal(ours.train_mask, theirs.train_mask)
    assert after.whole is None
    assert after.partition_hash != before.partition_hash


def test_one_convention_changes_nothing() -> None:
    before = federation()
    assert with_concepts(before, 1) is before
    assert with_few_labels(before, 0, seed=0) is before


def test_more_conventions_than_classes_or_clients_are_refused() -> None:
    with pytest.raises(SettingError, match=r"concepts=5: .* at most 4 conventions"):
        with_concepts(federation(), 5)
    with pytest.raises(SettingError, match="at most 3 conventions"):
        with_concepts(federation(clients=3), 4)


def test_few_labels_are_drawn_by_the_seed_from_the_training_nodes() -> None:
    before = federation()
    after, again, other = (with_few_labels(before, 4, seed) for seed in (0, 0, 1))
    differ = []
    for ours, same, theirs, old in zip(after.graphs, again.graphs, other.graphs, before.graphs, strict=True):
        assert ours.train_mask is not None
        assert old.train_mask is not None
        assert ours.train_mask.sum() == 4
        assert not (ours.train_mask & ~old.train_mask).any()
        np.testing.assert_array_equal(ours.train_mask, same.train_mask)
        np.testing.assert_array_equal(ours.test_mask, old.test_mask)
        differ.append(bool((ours.train_mask != theirs.train_mask).any()))
    assert any(differ)


def test_who_has_fewer_keeps_all() -> None:
    before = federation()
    after = with_few_labels(before, 10_000, seed=0)
    assert after.partition_hash == before.partition_hash

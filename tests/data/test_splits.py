"""Splits are drawn by the seed over the labelled nodes; masks that are there stay."""

from dataclasses import replace

import numpy as np
import pytest

from fedgkd.data.graph import Graph
from fedgkd.data.splits import DEFAULT_RATIOS, random_split
from fedgkd.errors import SettingError
from fedgkd.randomness import stream
from tests.graphs import random_graph


def unsplit(nodes: int) -> Graph:
    return replace(random_graph(nodes=nodes), train_mask=None, val_mask=None, test_mask=None)


def sizes(graph: Graph) -> list[int]:
    assert graph.masks is not None
    return [int(mask.sum()) for mask in graph.masks]


def test_ratios_decide_the_sizes() -> None:
    graph = unsplit(200)
    assert DEFAULT_RATIOS == (0.30, 0.35, 0.35)
    assert sizes(random_split(graph, 0)) == [60, 70, 70]
    assert sizes(random_split(graph, 0, (0.7, 0.2, 0.1))) == [140, 40, 20]
    assert sizes(random_split(graph, 0, (0.1, 0.1, 0.1))) == [20, 20, 20]
    assert sum(sizes(random_split(unsplit(37), 0))) == 37


def test_unlabelled_nodes_are_in_no_mask() -> None:
    graph = unsplit(20)
    y = graph.y.copy()
    y[:10] = -1
    split = random_split(replace(graph, y=y), 0, (0.5, 0.3, 0.2))
    assert sizes(split) == [5, 3, 2]
    assert split.masks is not None
    assert not np.stack(split.masks)[:, :10].any()


def test_the_seed_decides() -> None:
    graph = unsplit(100)
    first, again, other = (random_split(graph, seed).train_mask for seed in (1, 1, 2))
    assert first is not None
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_masks_that_are_there_stay() -> None:
    graph = random_graph()
    assert random_split(graph, 5) is graph


@pytest.mark.parametrize(
    "ratios", [(0.0, 0.5, 0.5), (-0.1, 0.5, 0.5), (0.5, 0.5, 0.5), (float("nan"), 0.3, 0.3), (float("inf"), 0.3, 0.3)]
)
def test_bad_ratios(ratios: tuple[float, float, float]) -> None:
    with pytest.raises(SettingError, match="each must be above 0 and their sum at most 1"):
        random_split(unsplit(10), 0, ratios)


def test_bad_seed() -> None:
    with pytest.raises(SettingError, match="seed -1 is not usable"):
        random_split(unsplit(10), -1)


def test_the_split_is_that_of_its_own_random_stream() -> None:
    """What is drawn for a purpose must not move, or no figure could be had again."""
    order = stream(3, "split").permutation(10)
    masks = random_split(unsplit(10), 3, (0.3, 0.2, 0.5)).masks
    assert masks is not None
    for mask, nodes in zip(masks, (order[:3], order[3:5], order[5:]), strict=True):
        assert np.flatnonzero(mask).tolist() == sorted(nodes.tolist())


def test_unusable_ratios_are_shown() -> None:
    with pytest.raises(SettingError, match=r"split ratios 0\.5/0\.25/0\.5 are not usable"):
        random_split(unsplit(10), 0, (0.5, 0.25, 0.5))

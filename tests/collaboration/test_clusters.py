from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedgkd.collaboration.clusters import (
    cluster_means,
    dtw_distances,
    minimum_cut,
    split_clusters,
    update_cosines,
    update_norms,
    update_products,
)


def test_dtw_of_sequences_with_known_distances() -> None:
    # The first pair is the example of dtaidistance's documentation, which says 1.4142….
    sequences = torch.tensor(
        [[0.0, 0, 1, 2, 1, 0, 1, 0, 0], [0.0, 1, 2, 0, 0, 0, 0, 0, 0], [3.0, 3, 3, 3, 3, 3, 3, 3, 3]],
        dtype=torch.float64,
    )
    distances = dtw_distances(sequences)
    assert distances[0, 1].item() == pytest.approx(2**0.5)
    # Against a constant 3 no warping helps: five 0s, three 1s and a 2 count once each.
    assert distances[0, 2].item() == pytest.approx((5 * 9 + 3 * 4 + 1) ** 0.5)
    assert distances.equal(distances.T)
    assert distances.diagonal().eq(0.0).all()


def test_dtw_lets_a_delay_pass_for_free_and_keeps_the_order() -> None:
    sequences = torch.tensor([[1.0, 2, 3, 3], [1.0, 1, 2, 3], [3.0, 3, 2, 1]], dtype=torch.float64)
    distances = dtw_distances(sequences)
    assert distances[0, 1].item() == 0.0
    # The ends must meet, 1 with 3 and 3 with 1; the best way between them costs 1 + 1.
    assert distances[0, 2].item() == pytest.approx(10**0.5)


def test_minimum_cut_separates_two_groups_and_names_the_larger_first() -> None:
    group = torch.tensor([1, 0, 1, 0, 1])
    similarity = torch.where(group[:, None] == group, 0.9, 0.1)
    assert minimum_cut(similarity) == ([0, 2, 4], [1, 3])


def test_minimum_cut_takes_off_a_single_client_where_all_are_much_alike() -> None:
    similarity = torch.full((4, 4), 1.0)
    similarity[2, :] = similarity[:, 2] = 0.9
    assert minimum_cut(similarity) == ([0, 1, 3], [2])


def test_minimum_cut_with_pairs_that_have_nothing_in_common() -> None:
    assert minimum_cut(torch.zeros(3, 3)) in [([0, 1], [2]), ([0, 2], [1]), ([1, 2], [0])]


def test_products_of_updates_hold_norms_cosines_and_the_norm_of_the_mean() -> None:
    downloads = {"a": torch.ones(3, 1, 1), "b": torch.zeros(3, 2), "c": torch.zeros(3, 1)}
    uploads = {
        "a": torch.tensor([4.0, 1.0, 1.0]).view(3, 1, 1),
        "b": torch.tensor([[4.0, 0.0], [2.0, 0.0], [0.0, 0.0]]),
        "c": torch.full((3, 1), 99.0),  # not among the shared ones
    }
    products = update_products(uploads, downloads, ["a", "b"])
    assert products.tolist() == [[25.0, 8.0, 0.0], [8.0, 4.0, 0.0], [0.0, 0.0, 0.0]]
    expected = torch.tensor([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(update_cosines(products), expected)
    assert update_norms(products, [0, 1]) == pytest.approx(((1.5**2 + 3.0**2) ** 0.5, 5.0))
    assert update_norms(products, [1]) == pytest.approx((2.0, 2.0))


def test_cluster_means_are_blocks() -> None:
    labels = torch.tensor([0, 1, 0])
    assert cluster_means(labels, torch.ones(3)).tolist() == [[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]]
    assert cluster_means(labels, torch.tensor([1.0, 7.0, 3.0])).tolist() == [
        [0.25, 0, 0.75],
        [0, 1, 0],
        [0.25, 0, 0.75],
    ]


def _split(labels: list[int], cohort: list[int], updates: list[float], eps_1: float = 0.5, eps_2: float = 0.5) -> dict:
    """Clients that move on a line; similar are those that move the same way."""
    moves = torch.tensor(updates, dtype=torch.float64)
    products = moves[:, None] * moves

    def similarity(rows: Sequence[int]) -> Tensor:
        return (products[list(rows)][:, list(rows)].sign() + 1.0).float()

    ready = torch.ones(len(cohort), dtype=torch.bool)
    found = split_clusters(torch.tensor(labels), cohort, products, similarity, ready, eps_1, eps_2)
    return {"labels": found.labels.tolist(), "divided": found.divided, **found.facts}


def test_every_cluster_is_judged_by_its_own_members() -> None:
    found = _split([0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5], [1.0, -1.0, 1.0, 1.0, 1.0, 1.0])
    assert found["labels"] == [0, 2, 0, 1, 1, 1]
    assert found["divided"] == [0, 1, 2]
    assert found["clusters"] == 3
    assert found["mean_update_norm"] == pytest.approx([1 / 3, 1.0])
    assert found["largest_update_norm"] == [1.0, 1.0]
    assert found["splits"] == [{"cluster": 0, "stay": [0, 2], "leave": [1]}]


def test_two_clusters_that_split_at_once_get_new_numbers_each() -> None:
    found = _split([0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5], [1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    assert found["labels"] == [0, 2, 0, 1, 1, 3]


@pytest.mark.parametrize(
    ("updates", "eps_1", "eps_2"),
    [
        ([1.0, -1.0, 1.0], 0.3, 0.5),  # the mean still moves
        ([1.0, -1.0, 1.0], 0.5, 1.0),  # nobody moves much
        ([1.0, -1.0], 0.5, 0.5),  # too small to split
    ],
)
def test_no_split_unless_all_criteria_are_met(updates: list[float], eps_1: float, eps_2: float) -> None:
    found = _split([0] * len(updates), list(range(len(updates))), updates, eps_1, eps_2)
    assert found["labels"] == [0] * len(updates)
    assert found["splits"] == []


def test_a_cluster_waits_until_all_of_its_members_are_ready() -> None:
    products = torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0], [1.0, -1.0, 1.0]], dtype=torch.float64)
    ready = torch.tensor([True, False, True])
    found = split_clusters(torch.zeros(3, dtype=torch.int64), [0, 1, 2], products, lambda rows: products, ready, 9, 0)
    assert found.labels.tolist() == [0, 0, 0]


def test_absent_clients_keep_their_cluster_and_do_not_count() -> None:
    found = _split([0, 0, 0, 0, 1], [0, 2, 3], [1.0, -1.0, 1.0])
    assert found["labels"] == [0, 0, 2, 0, 1]
    assert found["mean_update_norm"] == [pytest.approx(1 / 3), None]
    assert found["splits"] == [{"cluster": 0, "stay": [0, 3], "leave": [2]}]


def test_a_cluster_that_waits_does_not_hold_up_the_next() -> None:
    found = _split([0, 0, 1, 1, 1], [2, 3, 4], [1.0, -1.0, 1.0])
    assert found["labels"] == found["cluster_of"] == [0, 0, 1, 2, 1]
    assert found["mean_update_norm"] == [None, pytest.approx(1 / 3)]


def test_a_mean_update_must_be_below_the_bound() -> None:
    updates = [1.0, -1.0, 1.0, 1.0]  # their mean is 0.5
    assert _split([0] * 4, [0, 1, 2, 3], updates, eps_1=0.5)["splits"] == []
    assert _split([0] * 4, [0, 1, 2, 3], updates, eps_1=0.51)["labels"] == [0, 1, 0, 0]


def test_the_larger_part_stays_whoever_leaves() -> None:
    similarity = torch.full((4, 4), 1.0)
    similarity[0, :] = similarity[:, 0] = 0.9
    assert minimum_cut(similarity) == ([1, 2, 3], [0])


def test_rounding_takes_no_cosine_beyond_one() -> None:
    for update in torch.randn(40, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64):
        updates = update * torch.tensor([[1.0], [3.0], [-7.0]], dtype=torch.float64)
        cosines = update_cosines(updates @ updates.T)
        assert -1.0 <= cosines.min() < -0.999
        assert cosines.max() == 1.0

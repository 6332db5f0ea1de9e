"""One graph, two labellings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedgkd.data.synthetic import synthetic_graph
from fedgkd.distillation import TASK_FEATURES
from fedgkd.errors import RunError
from fedgkd.experiments.config import make_config
from fedgkd.experiments.grid import Given
from fedgkd.experiments.motivation import TASKS, facing, linear_cka, principal_components, study, two_labellings
from fedgkd.experiments.workers import News

GIVEN = Given(
    options={"synthetic": "num_nodes=200 num_features=16"},
    assignments={"hidden": "16", "threads": "1", "rounds": "15"},
)


def test_cka_forgives_rotation_and_scale_only() -> None:
    draw = np.random.default_rng(0)
    a = draw.normal(size=(200, 4))
    rotation = np.linalg.qr(draw.normal(size=(4, 4)))[0]
    assert linear_cka(a, a) == pytest.approx(1)
    assert linear_cka(a, 3 * a @ rotation + 7) == pytest.approx(1)
    assert linear_cka(a, draw.permutation(a)) < 0.1
    b = a * [1.0, 2.0, 0.0, 0.5]
    assert linear_cka(a, b) == pytest.approx(_cka_of_gram(a, b))


def _cka_of_gram(a: np.ndarray, b: np.ndarray) -> float:
    """The same measure from n × n Gram matrices: HSIC(K, L) / √(HSIC(K, K) HSIC(L, L))."""
    centre = np.eye(len(a)) - 1 / len(a)
    k, m = centre @ a @ a.T @ centre, centre @ b @ b.T @ centre
    return float(np.sum(k * m) / np.sqrt(np.sum(k * k) * np.sum(m * m)))


def test_principal_components_are_those_of_the_covariance() -> None:
    draw = np.random.default_rng(1)
    h = draw.normal(size=(100, 3)) * [5.0, 1.0, 0.2] + 9
    points = principal_components(h)
    variances = np.linalg.eigvalsh(np.cov(h.T))[::-1][:2]
    np.testing.assert_allclose(points.var(axis=0, ddof=1), variances)
    np.testing.assert_allclose(facing(points * [-1, 1], points), points)


def test_labels_are_flipped_and_nothing_else() -> None:
    graph = synthetic_graph(60, num_classes=3, num_communities=3)
    config = make_config(("test", {"algorithm": "local", "seed": 4}))
    original, repeated, flipped = two_labellings(graph, config).graphs
    np.testing.assert_array_equal(flipped.y, 2 - original.y)
    np.testing.assert_array_equal(repeated.y, original.y)
    for one, other in zip(original.masks or (), flipped.masks or (), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(original.x, flipped.x)


def test_the_study_shows_what_the_paper_claims_and_is_read_back(tmp_path: Path) -> None:
    told: list[News] = []
    record = study("synthetic", 2, GIVEN, tmp_path, None, "command", told.append)
    assert [news.event for news in told].count("finished") == 2
    assert record == json.loads((tmp_path / "motivation.json").read_text())
    assert (record["dataset"], record["seeds"]) == ("synthetic", [0, 1])
    assert record["relation"].keys() == set(TASK_FEATURES)
    for seed in range(2):
        similarity = record["embedding_similarity"]
        assert similarity["same"][seed] > similarity["flipped"][seed] > 0.6, "embeddings look alike"
        relation = record["relation"]["x_h"]
        assert relation["same"][seed] > relation["flipped"][seed] + 0.2, "task features tell the tasks apart"
    assert all(len(record["accuracy"][task]) == 2 and min(record["accuracy"][task]) > 0.5 for task in TASKS)
    with np.load(tmp_path / "motivation.npz") as stored:
        assert set(stored) == {"labels", *TASKS}
        assert stored["original"].shape == stored["flipped"].shape == (200, 2)
        assert stored["labels"].shape == (200,)
    assert study("synthetic", 2, GIVEN, tmp_path, None, "command", pytest.fail) == record


def test_another_study_or_a_damaged_one_is_not_passed_off(tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text('{"kind": "motivation", "commands": []}')
    (tmp_path / "motivation.json").write_text('{"dataset": "cora"}')
    with pytest.raises(RunError, match="of another dataset, other seeds or settings"):
        study("synthetic", 2, GIVEN, tmp_path, None, "command", pytest.fail)
    (tmp_path / "motivation.json").write_text('{"dataset": ')
    with pytest.raises(RunError, match=r"motivation\.json cannot be read"):
        study("synthetic", 2, GIVEN, tmp_path, None, "command", pytest.fail)

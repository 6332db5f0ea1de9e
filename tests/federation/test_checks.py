"""What the coordinator takes from a site, and the sentence for everything that it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedgkd.algorithms import ALGORITHMS
from fedgkd.clients import Tensors
from fedgkd.federation.checks import METRICS, Expected, Refused, cannot, rehearse, without_metrics
from fedgkd.federation.wire import Message
from tests.federation.memory import make_plan
from tests.graphs import planted_federation

ASKED = {"run": "this", "round": 3}
PLAN = make_plan(planted_federation(2), "fedgkd")
ALGORITHM = PLAN.algorithm()
EXPECTED = Expected.of(ALGORITHM, "trained", largest_norm=100.0)
GOOD = rehearse(ALGORITHM)


def check(change: Callable[[Tensors], Any] = lambda tensors: None, **facts: Any) -> Tensors:
    tensors = {name: tensor.clone() for name, tensor in GOOD.items()}
    change(tensors)
    return EXPECTED.check(Message({**ASKED, **facts}, tensors), ASKED)


def test_an_honest_upload_is_taken() -> None:
    assert check().keys() == ALGORITHM.uploads


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_rehearsal_has_the_form_of_every_algorithms_uploads(name: str) -> None:
    algorithm = make_plan(planted_federation(2), name).algorithm()
    upload = rehearse(algorithm)
    assert upload.keys() == algorithm.uploads
    assert all(len(tensor) == 1 for tensor in upload.values())


def test_the_rehearsal_leaves_the_algorithm_as_it_was() -> None:
    again = rehearse(ALGORITHM)
    assert all(torch.equal(again[name].nan_to_num(), tensor.nan_to_num()) for name, tensor in GOOD.items())


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"run": "another"}, "answered for another run"),
        ({"round": 2}, "answered for round 2 instead of round 3"),
        ({"round": None}, "answered for round None instead of round 3"),
        ({"diverged": True}, "reports that its training diverged"),
    ],
)
def test_an_answer_to_something_else_is_refused(facts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        check(**facts)


def put(name: str, value: torch.Tensor | float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = value if isinstance(value, torch.Tensor) else torch.full_like(GOOD[name], value)

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put("convs.0.weight", torch.nan), "'convs.0.weight' with values that are not finite"),
        (put("convs.0.weight", torch.inf), "'convs.0.weight' with values that are not finite"),
        (put("task_feature", torch.nan), "'task_feature' with values that are not finite"),
        (put("convs.0.weight", 1e30), r"norm .* more than the 100 that are allowed"),
        (put("task_feature", 1e6), r"norm .* more than the 100 that are allowed"),
        (put("convs.0.weight", torch.zeros(1, 2, 2)), r"of shape \(1, 2, 2\) instead of \(1, 16, 8\)"),
        (put("convs.0.weight", torch.zeros(2, 16, 8)), r"of shape \(2, 16, 8\)"),
        (put("convs.0.weight", torch.zeros(1, 16, 8, dtype=torch.float64)), "as torch.float64 instead of"),
        (put("surprise", torch.zeros(1)), "nobody asked for: 'surprise'"),
        (lambda tensors: tensors.pop("convs.0.weight"), "left out the tensor: 'convs.0.weight'"),
        (lambda tensors: tensors.clear(), "left out the tensor"),
        (put("loss", torch.nan), "a loss that is not finite"),
        (put("nodes", -1.0), "impossible numbers of nodes"),
        (put("nodes", torch.nan), "impossible numbers of nodes"),
        (put("nodes", 1e300), "impossible numbers of nodes"),
        (put("nodes", 2.5), "impossible numbers of nodes"),
        (put("trained_accuracy", 1e300), "an impossible 'trained_accuracy'"),
        (put("received_macro_f1", -torch.inf), "an impossible 'received_macro_f1'"),
        (put("a\n\x1b[2J" + "b" * 99, torch.zeros(1)), r"nobody asked for: 'a\\n\\x1b\[2Jb{74}'"),
    ],
)
def test_a_wrong_upload_is_refused_in_words(change: Callable[[Tensors], Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        check(change)


def test_a_site_may_keep_its_metrics_to_itself() -> None:
    hidden = without_metrics(GOOD)
    assert all(hidden[name].isnan().all() for name in METRICS if name in hidden)
    assert torch.equal(hidden["nodes"], GOOD["nodes"])
    assert EXPECTED.check(Message({**ASKED, "shared": False}, hidden), ASKED) is hidden
    with pytest.raises(Refused, match="a loss that is not finite"):
        EXPECTED.check(Message({**ASKED, "shared": True}, hidden), ASKED)


@pytest.mark.parametrize("data", [b"", b"x" * 7, b"\xff" * 40, b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a message of fedgkd"):
        Message.from_bytes(data)


def test_a_message_comes_out_as_it_went_in() -> None:
    message = Message(
        {"round": 3, "name": "é"}, {"b": torch.arange(3.0)[None], "a": torch.ones(1, 2, dtype=torch.int64)}
    )
    again = Message.from_bytes(message.to_bytes())
    assert again.facts == message.facts
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in message.tensors.items())
    assert again.tensors["a"].dtype == torch.int64


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("the disk is full", "answered that it cannot: the disk is full"),
        ("a\nb", "answered that it cannot: a b"),
        ("long " * 1000, "answered that it cannot: " + ("long " * 60).strip()),
        (None, "answered that it cannot; its own log says why"),
        (["?"], "answered that it cannot; its own log says why"),
    ],
)
def test_a_sites_reason_is_repeated_on_one_line(reason: Any, sentence: str) -> None:
    assert str(cannot(reason)) == sentence

"""An upload that lies far from what its site was sent is kept out; an honest one never is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from fedgkd.algorithms import ALGORITHMS
from fedgkd.data.federation import Federation
from fedgkd.errors import FederationError
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.federation.distances import Distances
from fedgkd.federation.site import Site
from fedgkd.federation.wire import Message
from tests.federation.memory import Memory, make_coordinator, make_plan, make_sites
from tests.graphs import planted_federation

REFUSED = "is kept out of the mixture"


def blown_up(question: bytes, answer: bytes, norm: float) -> bytes:
    """The site's upload, but with weights of that norm."""
    message = Message.from_bytes(answer)
    shared = Message.from_bytes(question).tensors.keys()
    if not shared:
        return answer
    whole = sum(float(message.tensors[name].double().square().sum()) for name in shared) ** 0.5
    changed = {name: t * (norm / whole) if name in shared else t for name, t in message.tensors.items()}
    return Message(message.facts, changed).to_bytes()


def train(folder: Path, federation: Federation, hostile: str) -> tuple[list[PersonalModel], list[str]]:
    plan = make_plan(federation, "fedavg", rounds=12, patience=0, lr=0.05)
    sites, said = make_sites(plan, federation, folder), []

    def answer(name: str, data: bytes) -> bytes | None:
        if name != "site-3" or hostile == "nobody":
            return sites[name].answer(data)
        return blown_up(data, sites[name].answer(data), 9_900.0) if hostile == "loud" else None

    make_coordinator(plan, folder, said).run_segment(Memory(sites, answer))
    return [PersonalModel.load(folder / name / "model.safetensors") for name in plan.sites[:3]], said


def accuracy(models: list[PersonalModel], federation: Federation) -> float:
    hits = [
        (model.probabilities(graph).argmax(axis=1) == graph.y)[graph.test_mask].mean()
        for model, graph in zip(models, federation.graphs[:3], strict=True)
    ]
    return float(sum(hits) / len(hits))


def test_one_site_of_four_does_not_move_the_others(tmp_path: Path) -> None:
    federation = planted_federation(4)
    alone, _ = train(tmp_path / "without", federation, "silent")
    attacked, said = train(tmp_path / "with", federation, "loud")
    honest, _ = train(tmp_path / "all", federation, "nobody")
    refusals = [line for line in said if REFUSED in line]
    assert len(refusals) == 12
    assert "site-3 is kept out of the mixture: it moved the weights by 9.9e+03, more than 10 times" in refusals[0]
    for ours, theirs in zip(attacked, alone, strict=True):
        assert all(torch.equal(ours.params[name], tensor) for name, tensor in theirs.params.items())
    assert accuracy(attacked, federation) > accuracy(honest, federation) - 0.1
    assert accuracy(attacked, federation) > 0.7


def own_sizes(*nodes: int, seed: int) -> Federation:
    graphs = [planted_federation(1, nodes=n, seed=9 * seed + k).graphs[0] for k, n in enumerate(nodes)]
    return Federation(tuple(graphs), dataset="planted", setting="own-graphs", seed=seed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_honest_site_is_never_refused(name: str, seed: int, tmp_path: Path) -> None:
    """Graphs of 16 to 320 nodes, tasks that contradict each other, one site, and two."""
    federations = (own_sizes(16, 60, 320, seed=seed), planted_federation(4, nodes=40, groups=4, seed=seed))
    for number, federation in enumerate((*federations, own_sizes(40, seed=seed), own_sizes(16, 160, seed=seed))):
        said: list[str] = []
        plan = make_plan(federation, name, rounds=6, patience=0, seed=seed)
        sites = make_sites(plan, federation, tmp_path / str(number))
        make_coordinator(plan, tmp_path / str(number), said).run_segment(Memory(sites))
        assert not [line for line in said if REFUSED in line]


def test_a_single_site_is_measured_by_its_own_beginning_also_after_a_restart(tmp_path: Path) -> None:
    federation, said = planted_federation(1), []
    plan = make_plan(federation, "fedper", rules={"segment": 3}, rounds=7, patience=0)
    sites = make_sites(plan, federation, tmp_path)
    make_coordinator(plan, tmp_path, said).run_segment(Memory(sites))
    assert not [line for line in said if REFUSED in line]

    def loud(name: str, data: bytes) -> bytes:
        return blown_up(data, sites[name].answer(data), 100.0)

    taken_up = make_coordinator(plan, tmp_path, said)
    with pytest.raises(FederationError, match="round 4 failed 3 times in a row"):
        taken_up.run_segment(Memory(sites, loud))
    assert taken_up.round == 3
    assert any(REFUSED in line and "10 times the median of the first rounds" in line for line in said)
    make_coordinator(plan, tmp_path, said).run_segment(Memory(sites))
    assert len([line for line in said if REFUSED in line]) == 3, "it is taken again when it is as before"


def test_a_site_cannot_grow_step_by_step() -> None:
    """Each ten times its own last step: the others' steps do not grow with it."""
    distances, step = Distances(), 1.0
    for _ in range(6):
        steps = {"a": 1.0, "b": 1.1, "c": 0.9, "loud": step}
        refused = distances.too_far(steps)
        distances.take_down({site: taken for site, taken in steps.items() if site not in refused})
        step *= 9.0
    assert max(distances.beginnings["loud"]) < 10 * 1.1
    assert len(distances.beginnings["a"]) == 6


@pytest.mark.parametrize("away", [range(1, 61), range(5, 61)], ids=["late", "back"])
def test_a_site_that_comes_when_the_others_hardly_move_is_taken_in(away: range, tmp_path: Path) -> None:
    """It was kept out for ever: the others' steps were a hundred times smaller, and it never got nearer to them."""
    federation, said = planted_federation(4), []
    settings = {"hidden": 32, "dropout": 0.0, "lr": 0.03}
    plan = make_plan(federation, "fedavg", rules={"segment": 80}, rounds=80, patience=0, **settings)
    coordinator = make_coordinator(plan, tmp_path, said)
    coordinator.run_segment(Without("site-3", away, make_sites(plan, federation, tmp_path)))
    assert coordinator.standings["site-3"].rounds == 80 - len(away)
    assert not [line for line in said if REFUSED in line]


class Without(Memory):
    """An exchange over which a site is not there in some rounds."""

    def __init__(self, site: str, away: range, sites: Mapping[str, Site]) -> None:
        super().__init__(sites)
        self.site, self.away = site, away

    def present(self) -> dict[str, bool]:
        gone = len(self.asked) + 1 in self.away
        return {site: True for site in self.sites if not (gone and site == self.site)}


def test_where_nobody_moves_nobody_is_refused() -> None:
    assert Distances().too_far({}) == {}
    assert Distances().too_far({"a": 0.0, "b": 0.0, "c": 0.1}) == {}
    assert Distances({"a": [0.0, 0.0]}).too_far({"a": 0.1}) == {}

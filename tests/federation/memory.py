"""A federation without a network: the sites of a test answer from memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedgkd.data.federation import Federation
from fedgkd.experiments.config import make_config
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.runner import Run
from fedgkd.experiments.selection import keep_model
from fedgkd.federation.checks import Refused
from fedgkd.federation.coordinator import Coordinator
from fedgkd.federation.plan import Plan, Rules
from fedgkd.federation.site import Site

Answer = Callable[[str, bytes], bytes | Refused | None]

SMALL = {"hidden": 8, "rounds": 3}


def make_plan(
    federation: Federation, algorithm: str = "fedavg", *, rules: Mapping[str, Any] = {}, **settings: Any
) -> Plan:
    sites = tuple(f"site-{number}" for number in range(federation.num_clients))
    base = Rules(name="test", features=federation.num_features, deadline=10.0, min_sites=1)
    return Plan(replace(base, **rules), sites, federation.num_classes, {"algorithm": algorithm, **SMALL, **settings})


def make_sites(plan: Plan, federation: Federation, folder: Path, **options: Any) -> dict[str, Site]:
    return {
        name: Site(plan, name, graph, folder / name, threads=1, **options)
        for name, graph in zip(plan.sites, federation.graphs, strict=True)
    }


class Memory:
    """An exchange whose sites are objects; ``answer`` may stand between them and the coordinator."""

    def __init__(self, sites: Mapping[str, Site], answer: Answer | None = None) -> None:
        self.sites = sites
        self.answer = answer or (lambda name, data: sites[name].answer(data))
        self.asked: list[list[str]] = []

    def present(self) -> Mapping[str, bool]:
        return dict.fromkeys(self.sites, True)

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Refused]:
        self.asked.append(list(messages))
        answers = {name: self.answer(name, data) for name, data in messages.items()}
        return {name: data for name, data in answers.items() if data is not None}

    def pause(self, seconds: float) -> bool:
        return True


def make_coordinator(plan: Plan, folder: Path, said: list[str] | None = None) -> Coordinator:
    said = [] if said is None else said
    return Coordinator(plan, folder / "run", said.append)


class Simulation:
    """The in-process engine on the same federation: its records and every client's model of every round."""

    def __init__(self, algorithm: str, federation: Federation, **settings: Any) -> None:
        config = make_config(("a test", {**SMALL, **settings, "algorithm": algorithm}))
        self.run = Run(config, federation, None)
        self.run.start()
        self.records: list[dict[str, Any]] = []
        self.models: list[list[PersonalModel]] = []
        for _ in range(config.run.rounds):
            self.records.append(self.run.step())
            for batch in self.run.engine.batches:
                keep_model(batch)
            self.models.append([_copy(model) for model in self.run.personal_models()])

    def chosen(self, rounds: Sequence[int]) -> list[PersonalModel]:
        """Each client's model of the round that it chose."""
        return [self.models[round_ - 1][client] for client, round_ in enumerate(rounds)]


def _copy(model: PersonalModel) -> PersonalModel:
    return replace(model, params={name: tensor.clone() for name, tensor in model.params.items()})


def final_models(folders: Iterable[Path]) -> list[PersonalModel]:
    return [PersonalModel.load(folder / "model.safetensors") for folder in folders]


def chosen_rounds(folders: Iterable[Path]) -> list[int]:
    """The round of every site's model; it must be the first best one by the site's own validation nodes."""
    rounds = []
    for site in folders:
        result = json.loads((site / "result.json").read_text())
        reports = [json.loads(line) for line in (site / "metrics.jsonl").read_text().splitlines()]
        best = max(reports, key=lambda report: (report[f"{report['selected']}_accuracy"]["val"], -report["round"]))
        assert result["best_round"] == best["round"] == result["at_best_round"]["round"]
        rounds.append(best["round"])
    return rounds


def assert_same_models(ours: list[PersonalModel], theirs: list[PersonalModel]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        for name, tensor in other.params.items():
            torch.testing.assert_close(one.params[name], tensor, rtol=1e-3, atol=1e-4, msg=name)

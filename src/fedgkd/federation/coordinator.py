"""The coordinator's rounds: send every site its model, wait until the deadline, check, relate, mix, store.

It knows the sites by name and speaks to them through an :class:`Exchange`; of the network it knows nothing. After every
round its whole state is on disk, so that a killed coordinator loses at most the round that was under way.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Protocol

from fedgkd.atomic import atomic_write_text
from fedgkd.clients import Tensors
from fedgkd.collaboration import Mixing
from fedgkd.engines.in_process import bytes_per_client, gather, take
from fedgkd.errors import FederationError
from fedgkd.experiments.config import Config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.plain import plain
from fedgkd.experiments.records import Record, figures, relation_matrices, result_record, round_record
from fedgkd.experiments.scores import Best, Scoreboard
from fedgkd.experiments.serving import serve
from fedgkd.federation.attendance import Attendance
from fedgkd.federation.checks import SILENT, Expected, Refused, largest_message, rehearse
from fedgkd.federation.distances import Distances, distance
from fedgkd.federation.names import STATUS
from fedgkd.federation.plan import Plan
from fedgkd.federation.standing import Standing, all_are_settled
from fedgkd.federation.wire import Message
from fedgkd.models.network import part
from fedgkd.training.evaluation import TEST, VAL

ROUND, FINISH = "round", "finish"
SLOTS = 3
"""Checkpoints that are kept: one may be half written, and the newest of the others damaged."""
_FAREWELL = 60.0
"""Seconds that the sites have to write down their models in the end."""
_RETURN = 60.0
"""Seconds to wait at least for sites that are about to take part: they are being started, or were there just before."""
_PAUSE = 0.5
_TRIES = 3
"""How often in a row a round may have too few usable answers before the training ends."""


Facts = Mapping[str, Any]


class Interrupted(Exception):
    """The segment was stopped while the sites were at work."""


class Exchange(Protocol):
    """How the coordinator reaches the sites."""

    def present(self) -> Mapping[str, bool]:
        """The sites that are connected, and whether each can be asked already."""

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Refused]:
        """The answers that come within so many seconds, by site; why there is none from one that cannot.

        A site whose connection is closed is not waited for.

        Raises:
            Interrupted: If the segment is stopped before that.
        """

    def pause(self, seconds: float) -> bool:
        """Wait; False if the segment is to end."""


class Coordinator:
    """A federation's server.

    Args:
        plan: What the parties agreed on.
        folder: Where the run is kept: records, relations, checkpoint, status. A run that is there goes on.
        say: Gets a sentence for everything worth telling.
    """

    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None] = lambda sentence: None) -> None:
        self.plan = plan
        self.say = say
        self.directory = RunDirectory(folder, SLOTS)
        self.attendance = Attendance(plan.sites)
        self.algorithm = plan.algorithm()
        rehearsed = rehearse(self.algorithm, plan.config.run.select)
        self.expected = Expected.of(self.algorithm, plan.config.run.select, plan.rules.largest_norm, rehearsed)
        self.largest = largest_message(plan, rehearsed)
        sites = len(plan.sites)
        start = self.algorithm.model.initial(plan.config.run.seed, 1)
        self.models: Tensors = {
            name: start[name].expand(sites, *start[name].shape[1:]) for name in self.algorithm.shared
        }
        self.memory: Tensors = {}
        self.run = secrets.token_hex(8)
        self.round = 0
        self.scores = Scoreboard.empty(sites)
        self.best, self.best_received = Best(), Best()
        self.compared: list[int] = []
        self.standings = {site: Standing() for site in plan.sites}
        self.totals: dict[str, float] = {"bytes_up": 0, "bytes_down": 0, "seconds": 0.0}
        self.bytes = {site: {"up": 0, "down": 0} for site in plan.sites}
        self.distances = Distances()
        self.remarks: dict[str, str] = {}
        self.informed: set[str] = set()
        self.present: Mapping[str, bool] = {}
        self.waiting: str | None = None
        self.repeated = 0
        self._take_up()
        self.report_status()

    @property
    def is_over(self) -> bool:
        """Whether all rounds are done, or nobody has use for more."""
        if self.directory.result_file.exists():
            return True
        settings = self.plan.config.run
        settled = all_are_settled(self.standings.values(), self.round, settings.patience)
        return self.round >= settings.rounds or settled

    def run_segment(self, exchange: Exchange, wait: float = 0.0, *, everybody: bool = False) -> None:
        """Some rounds, at most as many as the plan has in a segment; in the end, the sites are told so.

        Args:
            wait: Seconds to wait for sites that are missing.
            everybody: Whether the first round waits for every site of the plan that is not blocked; otherwise it waits
                for those of the last round, and not long.

        Raises:
            FederationError: If there are fewer than ``min_sites`` even so.
        """
        try:
            self._rounds(exchange, wait, everybody)
        except Interrupted:
            self.say(f"stopped; {self.round} rounds are done")
        self.report_status()

    def _rounds(self, exchange: Exchange, wait: float, everybody: bool) -> None:
        listed = [site for site in self.plan.sites if site not in self.plan.blocked]
        awaited = [site for site in listed if everybody or self._was_there(site)]
        patience, limit = (wait, wait) if everybody else (min(wait, _RETURN), max(wait, _RETURN))
        for number in range(self.plan.rules.segment):
            if self.is_over:
                break
            asked = self._gather(exchange, awaited, patience, limit)
            if not number:
                self.say(f"training with {', '.join(asked)}")
            self._one_round(exchange, asked)
            awaited, limit = [], max(wait, _RETURN)
            self.report_status()
        if self.is_over:
            self._finish(exchange)

    def _was_there(self, site: str) -> bool:
        return 0 < self.round == self.standings[site].last

    # --- a round -----------------------------------------------------------------------------------------------

    def _gather(self, exchange: Exchange, awaited: Collection[str], patience: float, limit: float) -> list[str]:
        """The sites to ask, as soon as all that are awaited are here, or enough of them after ``patience`` seconds.

        Raises:
            FederationError: If there are not enough after ``limit`` seconds.
        """
        began = time.monotonic()
        try:
            while True:
                self._look(exchange)
                here = self.attendance.expected(site for site, ready in self.present.items() if ready)
                missing = [site for site in awaited if site not in here]
                enough = len(here) >= self.plan.rules.min_sites
                if enough and not missing:
                    return here
                waited = time.monotonic() - began
                starting = any(not ready for ready in self.present.values())
                allowed = patience if enough else limit
                if waited >= (max(allowed, _RETURN) if starting else allowed):
                    if enough:
                        self.say(f"going on without {self._named(missing)}; who comes later takes part from then on")
                        return here
                    absent = [site for site in self.plan.sites if site not in here]
                    raise FederationError(
                        f"only {len(here)} of at least {self.plan.rules.min_sites} sites are here "
                        f"after {waited:.0f} s; missing: {self._named(absent)}"
                    )
                self._tell_who_is_missing(here, missing or [site for site in self.plan.sites if site not in here])
                if not exchange.pause(_PAUSE):
                    raise Interrupted
        finally:
            if self.waiting:
                self.waiting = None
                self.report_status()

    def _look(self, exchange: Exchange) -> None:
        """See who is there, and tell who has gone since the last look."""
        before, self.present = self.present, exchange.present()
        for site in self.plan.sites:
            if site in before and site not in self.present:
                gone = "gone: its connection was closed"
                self.remarks[site] = self.remarks.get(site) or gone  # what it said last may be why it is gone
                self.say(f"{site} is {gone}")

    def _tell_who_is_missing(self, here: Collection[str], missing: Collection[str]) -> None:
        sentence = f"waiting for {self._named(missing)}; here: {', '.join(here) or 'nobody'}"
        if sentence != self.waiting:
            self.waiting = sentence
            self.say(sentence)
            self.report_status()

    def _named(self, sites: Iterable[str]) -> str:
        return ", ".join(f"{site} ({self._whereabouts(site)})" for site in sites)

    def _whereabouts(self, site: str) -> str:
        if site in self.plan.blocked:
            return "blocked"
        if site not in self.present:
            return "not connected"
        if not self.present[site]:
            return "starting"
        if self.attendance.rests(site):
            return "refusing"
        return "skipped" if self.attendance.is_dark(site) else "here"

    def _one_round(self, exchange: Exchange, asked: Sequence[str]) -> None:
        began = time.perf_counter()
        round_, cohort = self.round + 1, [self.plan.sites.index(site) for site in asked]
        downloads = take(self.models, cohort)
        facts = self._facts(ROUND, round_)
        messages = {
            site: Message(facts, {name: tensor[k : k + 1] for name, tensor in downloads.items()}).to_bytes()
            for k, site in enumerate(asked)
        }
        answers = exchange.ask(messages, self.plan.rules.deadline)
        usable, said = self._usable(answers, facts)
        self._look(exchange)
        steps = self._near(round_, usable, {site: take(downloads, [k]) for k, site in enumerate(asked)})
        refused = [site for site, answer in answers.items() if isinstance(answer, Refused)]
        for site in self.attendance.end_round(asked, answers, refused):
            self.say(f"{site} has missed two rounds; it is skipped until it is back")
        self._note_late(round_, asked, answers)
        if len(usable) < self.plan.rules.min_sites:
            self._repeat(round_, asked, usable)
            return
        self.round, self.repeated = round_, 0
        self.distances.take_down(steps)
        served = time.perf_counter()
        present = [self.plan.sites.index(site) for site in usable]
        uploads = gather(list(usable.values()), range(len(usable)))
        moved = bytes_per_client(uploads), bytes_per_client(downloads)
        self._count(asked, [site for site in answers if site not in refused], *moved)
        self._score(uploads, present, said)
        mixing, self.models = serve(self.algorithm, uploads, present, round_, self.models, self.memory)
        self.memory = mixing.memory
        now = time.perf_counter()
        slowest = max(_seconds(facts) for facts in said.values())
        seconds = {"sites": slowest, "server": now - served, "total": now - began}
        self.totals["seconds"] += seconds["total"]
        record = round_record(round_, cohort, present, self.scores, self.best.round, moved, mixing)
        self._store(record | {"seconds": seconds}, mixing, present)
        self._tell(round_, usable, asked, seconds["total"])

    def _repeat(self, round_: int, asked: Sequence[str], usable: Collection[str]) -> None:
        """Too few usable answers.

        Raises:
            FederationError: If that happened several times in a row: then it is not going to be better by itself.
        """
        few = (
            f"{len(usable)} of {len(asked)} sites gave a usable answer, at least {self.plan.rules.min_sites} are needed"
        )
        self.repeated += 1
        if self.repeated == _TRIES:
            reasons = "; ".join(f"{site} is {self.remarks[site]}" for site in asked if site not in usable)
            raise FederationError(f"round {round_} failed {_TRIES} times in a row: {few} ({reasons})")
        self.say(f"round {round_} is repeated: {few}")

    def _facts(self, kind: str, round_: int) -> dict[str, Any]:
        return {"kind": kind, "run": self.run, "round": round_, "terms": self.plan.terms()}

    def _usable(
        self, answers: Mapping[str, bytes | Refused], facts: Facts
    ) -> tuple[dict[str, Tensors], dict[str, Facts]]:
        """The uploads that pass the checks, in the sites' order, and the facts beside them."""
        usable: dict[str, Tensors] = {}
        said: dict[str, Facts] = {}
        for site in self.plan.sites:
            if site not in answers:
                continue
            try:
                message = _message(answers[site], self.largest)
                usable[site] = self.expected.check(message, facts)
            except Refused as reason:
                self._keep_out(site, facts["round"], str(reason))
            else:
                self.remarks[site] = ""
                said[site] = message.facts
        return usable, said

    def _near(self, round_: int, usable: dict[str, Tensors], downloads: Mapping[str, Tensors]) -> dict[str, float]:
        """Keep out uploads that lie too far from what their sites were sent; how far the others do."""
        steps = {site: distance(upload, downloads[site]) for site, upload in usable.items()}
        for site, reason in self.distances.too_far(steps).items():
            self._keep_out(site, round_, reason)
            del usable[site], steps[site]
        return steps

    def _keep_out(self, site: str, round_: int, reason: str) -> None:
        if reason != SILENT or not self.remarks.get(site):  # what it said last may be why it says nothing now
            self.remarks[site] = f"refused: it {reason}"
        self.say(f"round {round_}: {site} is kept out of the mixture: it {reason}")

    def _note_late(self, round_: int, asked: Sequence[str], answers: Mapping[str, bytes | Refused]) -> None:
        for site in asked:
            if site not in answers and site in self.present:
                self.remarks[site] = f"late: no answer within {self.plan.rules.deadline:g} s"
                self.say(f"round {round_}: {site} is {self.remarks[site]}")

    def _count(self, asked: Sequence[str], answered: Sequence[str], up: int, down: int) -> None:
        """What the algorithm moved, counted as in a simulation."""
        for site in asked:
            self.bytes[site]["down"] += down
            self.bytes[site]["up"] += up * (site in answered)
        self.totals["bytes_down"] += down * len(asked)
        self.totals["bytes_up"] += up * len(answered)

    def _score(self, uploads: Tensors, present: Sequence[int], said: Mapping[str, Facts]) -> None:
        """Take in the reports: each moves its own site's standing, and all of them the figures of the federation."""
        self.scores.update(uploads, present, self.plan.config.run.select)
        accuracy = self.scores.accuracy["selected"]
        for row in present:
            site = self.plan.sites[row]
            self.standings[site].take_part(self.round, said[site], accuracy[row, VAL], accuracy[row, TEST])
        self._offer(present, [row for row in present if math.isfinite(accuracy[row, VAL])])

    def _offer(self, present: Sequence[int], scored: list[int]) -> None:
        """The best round is for the record only, and is one among rounds of the same sites: the most that reported."""
        if len(scored) > len(self.compared):
            self.compared, self.best, self.best_received = scored, Best(), Best()
        if scored and scored == self.compared:
            fresh = self.scores.only(present)
            self.best.offer(self.round, fresh.mean("selected", VAL), figures(fresh, "selected"))
            self.best_received.offer(self.round, fresh.mean("received", VAL), figures(fresh, "received"))

    def _tell(self, round_: int, usable: Mapping[str, Any], asked: Sequence[str], seconds: float) -> None:
        accuracy = self.scores.mean("selected", VAL)
        shared = "" if math.isnan(accuracy) else f", mean validation accuracy {accuracy:.1%}"
        rounds = self.plan.config.run.rounds
        self.say(f"round {round_}/{rounds}: {len(usable)} of {len(asked)} sites in {seconds:.1f} s{shared}")

    # --- storage -----------------------------------------------------------------------------------------------

    def _store(self, record: Record, mixing: Mixing, present: Sequence[int]) -> None:
        self.directory.append_round(plain(record), relation_matrices(mixing, present, len(self.plan.sites)))
        tensors = {f"server.{name}": tensor for name, tensor in self.models.items()}
        tensors |= {f"memory.{name}": tensor for name, tensor in self.memory.items()}
        self.directory.state.write(self.round, tensors, plain(self._state()))

    def _state(self) -> Record:
        return {
            "run": self.run,
            "records": self.directory.records(),
            "terms": self.plan.terms(),
            "best": asdict(self.best),
            "best_received": asdict(self.best_received),
            "scores": asdict(self.scores),
            "totals": self.totals,
            "bytes": self.bytes,
            "compared": self.compared,
            "distances": self.distances.beginnings,
            "remarks": self.remarks,
            "standings": {site: asdict(standing) for site, standing in self.standings.items()},
        }

    def _take_up(self) -> None:
        """Go on where the folder's last whole checkpoint is, or start a run there.

        Raises:
            FederationError: If the folder holds a run of another plan.
        """
        if not self.directory.config_file.exists():
            self.directory.create(self._config())
            return
        if self.directory.result_file.exists():
            result = self.directory.read_result()
            self.run, self.round, self.best.round = result["run"], result["rounds"], result["best_round"]
            self._know({row["site"]: row for row in result.get("sites", [])})
            self.remarks = {row["site"]: row["left_out"] or "" for row in result.get("sites", [])}
            return
        problems: list[str] = []
        stored = next(iter(self.directory.state.newest_first(problems)), None)
        for problem in problems:
            self.say(f"{problem}; an older one is used if there is one")
        if problems and stored is None:
            raise FederationError(
                f"no checkpoint in {self.directory.path} is whole; "
                "put a copy of it back, or move that folder away to start anew"
            )
        if stored is not None:
            facts = stored.facts
            _check_same(facts["terms"], plain(self.plan.terms()), self.directory.path)
            self.run, self.round = facts["run"], stored.serial
            self.best, self.best_received = Best(**facts["best"]), Best(**facts["best_received"])
            self.scores = Scoreboard.from_plain(facts["scores"])
            self.totals, self.bytes, self.compared = facts["totals"], facts["bytes"], facts.get("compared", [])
            self.distances = Distances(facts.get("distances", {}))
            self.remarks = facts.get("remarks", {})
            self._know(facts.get("standings", {}))
            self.models, self.memory = part(stored.tensors, "server."), part(stored.tensors, "memory.")
        records = None if stored is None else stored.facts.get("records")
        self.directory.rewind(self.round, len(self.plan.sites), records)

    def _know(self, standings: Mapping[str, Mapping[str, Any]]) -> None:
        """Take up what was stored; runs of older versions stored nothing of it."""
        names = [entry.name for entry in fields(Standing)]
        self.standings |= {site: Standing(**{name: known[name] for name in names}) for site, known in standings.items()}

    def _config(self) -> Config:
        """For the record: the federation takes the place of dataset and partition."""
        config = self.plan.config
        run = replace(config.run, dataset=self.plan.rules.name, clients=len(self.plan.sites))
        return replace(config, run=run)

    # --- the end -----------------------------------------------------------------------------------------------

    def _finish(self, exchange: Exchange) -> None:
        """Let every site that is there write down its model, and write the result."""
        if not self.best.round:
            # Nobody has, or shares, validation nodes: the last round is all there is.
            self.best.round, self.best.figures = self.round, figures(self.scores, "selected")
        message = Message(self._facts(FINISH, self.round + 1), {}).to_bytes()
        until = time.monotonic() + _FAREWELL
        while not all(exchange.present().values()) and time.monotonic() < until and exchange.pause(_PAUSE):
            pass
        self.present = exchange.present()
        here = [site for site, ready in self.present.items() if ready and site in self.standings]
        answers = exchange.ask(dict.fromkeys(here, message), _FAREWELL)
        for site, answer in answers.items():
            self._hear_out(site, answer)
        for site in self.plan.sites:
            if reason := self._why_out(site):
                self.say(f"{site} took part in no round and gets no model: {reason}")
            elif site not in self.informed:
                self.say(f"{site} is not here at the end; it keeps its best model so far; another start tells it")
        if not self.directory.result_file.exists():
            self.directory.finish(plain(self._result()), len(self.plan.sites))
            self.say(f"finished after {self.round} rounds")

    def _hear_out(self, site: str, answer: bytes | Refused) -> None:
        """A site has written down its model, and says of which round it is."""
        try:
            said = _message(answer, self.largest).facts
        except Refused:
            return
        self.standings[site].choose({**said, "round": self.round})
        self.informed.add(site)

    def _why_out(self, site: str) -> str | None:
        """Why the site trained in no round; None if it did."""
        if self.standings[site].rounds:
            return None
        if site in self.plan.blocked:
            return "it is blocked in the coordinator's federation file"
        return self.remarks.get(site) or ("it came too late" if site in self.present else "it never came")

    def _result(self) -> Record:
        record = result_record(
            self.plan.config,
            self.algorithm,
            self.plan.sites,
            self.round,
            self.scores,
            self.best,
            self.best_received,
            self.totals,
            dataset=self.plan.rules.name,
            setting="federation",
            partition_hash=None,
        )
        return {"run": self.run, **record, "sites": [self._site_result(site) for site in self.plan.sites]}

    def _site_result(self, site: str) -> Record:
        return {"site": site, **asdict(self.standings[site]), "left_out": self._why_out(site)}

    # --- status ------------------------------------------------------------------------------------------------

    def report_status(self) -> None:
        """Write down where the run is, for 'fedgkd federation status'."""
        finished = self.directory.result_file.exists()
        status = {
            "name": self.plan.rules.name,
            "run": self.run,
            "algorithm": self.plan.config.run.algorithm,
            "finished": finished,
            "round": self.round,
            "rounds": self.plan.config.run.rounds,
            "best_round": self.best.round,
            "informed": sorted(self.informed),
            "waiting": self.waiting,
            "problem": None,
            "sites": [self._site_status(number, site, finished) for number, site in enumerate(self.plan.sites)],
        }
        atomic_write_text(
            self.directory.path / STATUS, json.dumps(plain(status), allow_nan=False) + "\n", FederationError
        )

    def _site_status(self, number: int, site: str, finished: bool) -> Record:
        return {
            "site": site,
            "round": self.standings[site].last,
            "scored_round": self.standings[site].scored_round,
            "left_out": self._why_out(site) if finished else None,
            "accuracy": self.scores.accuracy["selected"][number, VAL],
            "seen": self.attendance.seen.get(site),
            "bytes_up": self.bytes[site]["up"],
            "bytes_down": self.bytes[site]["down"],
            "whereabouts": self._whereabouts(site),
            "remark": self.remarks.get(site, ""),
        }


def report_problem(folder: Path, problem: str) -> None:
    """Add to the status why the training does not go on."""
    path = folder / STATUS
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # nothing has been begun yet
    if isinstance(status, dict):
        atomic_write_text(path, json.dumps({**status, "problem": problem}) + "\n", FederationError)


def _message(answer: bytes | Refused, largest: int) -> Message:
    if isinstance(answer, Refused):
        raise answer
    if len(answer) > largest:
        raise Refused(f"sent {len(answer):,} bytes, where at most {largest:,} are expected")
    try:
        return Message.from_bytes(answer)
    except ValueError as error:
        raise Refused(f"sent something that is {error}") from error


def _seconds(facts: Mapping[str, Any]) -> float:
    seconds = facts.get("seconds")
    return float(seconds) if isinstance(seconds, float) and math.isfinite(seconds) else 0.0


def _check_same(then: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    changed = sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
    if changed:
        raise FederationError(
            f"the federation file has changed since {folder} was begun ({', '.join(changed)}); "
            "change it back, or move that folder away to start anew"
        )

"""What many runs look like while they go on: live bars on a terminal, plain lines elsewhere; both on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from fedgkd.cli import console

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial
    from rich.progress import Progress

    from fedgkd.experiments.tune import Tuning, Watch
    from fedgkd.experiments.workers import News


@contextmanager
def grid_progress(total: int) -> Iterator[Callable[[News], None]]:
    """Shows the news of that many runs: a line for every one that ends, and on a terminal bars for those under way.

    Ctrl-C ends the command with a sentence that says how to go on.
    """
    lines = _GridLines(total)
    try:
        if not console.err.is_terminal:
            yield lines
            return
        with _bars() as progress:
            bars = _GridBars(progress, total)

            def show(news: News) -> None:
                bars(news)
                lines(news)

            yield show
    except KeyboardInterrupt:
        raise _stopped() from None


class _GridLines:
    def __init__(self, total: int) -> None:
        self._total, self._ended = total, 0

    def __call__(self, news: News) -> None:
        if news.event == "warning":
            _say(f"warning: {news.cell.name}: {news.value}")
        if news.event in ("finished", "failed"):
            self._ended += 1
            place = f"[{self._ended:>{len(str(self._total))}}/{self._total}]"
            facts = _result_facts(news.value) if news.event == "finished" else f"failed: {news.value}"
            _say(f"{place} {news.cell.name}  {facts}")


class _GridBars:
    """One bar for the whole grid and one for every run under way."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._ended = progress, total, 0
        self._overall = progress.add_task(self._title(), total=total, facts="")
        self._under_way: dict[str, Any] = {}

    def __call__(self, news: News) -> None:
        name = news.cell.name
        if news.event == "started":
            rounds = news.cell.config.run.rounds
            self._under_way[name] = self._progress.add_task(f"  {name}", total=rounds, facts="")
        elif news.event == "round":
            self._progress.update(self._under_way[name], completed=news.value["round"], facts=_round_facts(news.value))
        elif news.event in ("finished", "failed"):
            self._ended += 1
            self._progress.remove_task(self._under_way.pop(name))
        under_way = sum(task.percentage for task in self._progress.tasks[1:]) / 100
        self._progress.update(self._overall, completed=self._ended + under_way, description=self._title())

    def _title(self) -> str:
        return f"{self._ended}/{self._total} runs"


@contextmanager
def tuning_progress(tuning: Tuning) -> Iterator[Watch]:
    """Shows the trials of a study: a line for every one that ends, and on a terminal bars for the one under way."""
    from fedgkd.experiments.tune import Watch

    lines = _TrialLines(tuning)
    try:
        if not console.err.is_terminal:
            yield Watch(on_end=lines)
            return
        with _bars() as progress:
            yield _TrialBars(progress, tuning, lines).watch
    except KeyboardInterrupt:
        raise _stopped() from None


class _TrialLines:
    def __init__(self, tuning: Tuning) -> None:
        self._wanted = tuning.wanted

    def __call__(self, trial: FrozenTrial) -> None:
        pruned = trial.state.name == "PRUNED"
        figure = "pruned" if pruned else f"val {_percent(trial.value)}"
        _say(f"trial {trial.number + 1:>{len(str(self._wanted))}}  {figure:>10}  {_assignments(trial.params)}")


class _TrialBars:
    """One bar for the study and one for the trial under way."""

    def __init__(self, progress: Progress, tuning: Tuning, lines: _TrialLines) -> None:
        self._progress, self._lines, self._wanted = progress, lines, tuning.wanted
        self._rounds, self._runs = tuning.configs({})[0].run.rounds, len(tuning.configs({}))
        self._overall = progress.add_task("trials", total=self._wanted, facts="")
        self._current = progress.add_task("", total=self._rounds * self._runs, facts="")

    @property
    def watch(self) -> Watch:
        from fedgkd.experiments.tune import Watch

        return Watch(self._on_start, self._on_round, self._on_end)

    def _on_start(self, ended: int, params: Any) -> None:
        self._progress.update(self._overall, completed=ended, description=f"{ended}/{self._wanted} trials")
        self._progress.reset(self._current, description=f"  {_assignments(params)}", facts="")

    def _on_round(self, done: int, record: dict[str, Any]) -> None:
        facts = f"run {done + 1}/{self._runs}  {_round_facts(record)}"
        self._progress.update(self._current, completed=done * self._rounds + record["round"], facts=facts)

    def _on_end(self, trial: FrozenTrial) -> None:
        self._lines(trial)


def _stopped() -> typer.Exit:
    console.err.print("\nstopped; the same command goes on")
    return typer.Exit(130)


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=console.err, transient=True) as progress:
        yield progress


def _say(line: str) -> None:
    console.err.print(line, soft_wrap=True)


def _round_facts(record: dict[str, Any]) -> str:
    return f"round {record['round']}  val {_percent(record['selected']['accuracy']['val'])}"


def _result_facts(result: dict[str, Any]) -> str:
    return (
        f"test {_percent(result['test_accuracy'])}  val {_percent(result['val_accuracy'])}  "
        f"rounds {result['rounds']}  {result['seconds']:.1f} s"
    )


def _assignments(params: Any) -> str:
    return "  ".join(f"{name}={value}" for name, value in params.items())


def _percent(value: float | None) -> str:
    return console.NOTHING if value is None else console.share(value)

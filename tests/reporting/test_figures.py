"""What the figures show, and the files that they become."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from fedgkd.reporting.comparison import Cell
from fedgkd.reporting.figures import (
    MOST_POINTS,
    Chart,
    Series,
    accuracy_against_bytes,
    accuracy_against_time,
    cell_charts,
    client_accuracies,
    convergence,
    motivation_charts,
    relation_quality,
    study_chart,
)
from fedgkd.reporting.interactive import chart_spec
from fedgkd.reporting.methods import INK
from fedgkd.reporting.report import Report, read_report
from fedgkd.reporting.static import FORMATS, save_chart, save_heat_maps, save_network
from tests.reporting.written import write_comparison, write_motivation, write_run, write_study


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    """FedGKD with two seeds, of which one stopped a round earlier, and Local with one."""
    write_run(tmp_path / "a", "fedgkd", 0, [0.9, 0.7], rounds=4, best_round=3, relations="R")
    write_run(tmp_path / "b", "fedgkd", 1, [0.8, 0.6], rounds=3, best_round=2, relations="R")
    write_run(tmp_path / "c", "local", 0, [0.5, None], rounds=4, best_round=4)
    return read_report(tmp_path).comparison.cells[0]


@pytest.fixture
def full(tmp_path: Path) -> Report:
    """Something of everything."""
    write_comparison(tmp_path / "comparison")
    write_study(tmp_path / "tau", "tau", [0.1, 0.5])
    for seed in (0, 1):
        for tau in (0.1, 0.5):
            write_run(tmp_path / "tau" / f"{tau}-{seed}", tau=tau, seed=seed)
    write_motivation(tmp_path / "motivation")
    return read_report(tmp_path)


def series_of(chart: Chart, label: str) -> Series:
    (found,) = [series for series in chart.series if series.label == label]
    return found


def test_convergence_is_averaged_as_far_as_all_seeds_go(cell: Cell) -> None:
    fedgkd = series_of(convergence(cell), "FedGKD")
    assert fedgkd.x.tolist() == [1, 2, 3]
    # 77, 78, 79 in four rounds to 80, and 68, 69, 70 in three.
    assert fedgkd.y.tolist() == pytest.approx([72.5, 73.5, 74.5])
    assert fedgkd.spread is not None
    assert fedgkd.spread.tolist() == pytest.approx([9 / np.sqrt(2)] * 3)
    local = series_of(convergence(cell), "Local")
    assert len(local.x) == 4
    assert local.spread is None


def test_relation_quality_only_of_those_that_have_it(cell: Cell) -> None:
    (quality,) = relation_quality(cell).series
    assert quality.label == "FedGKD"
    assert np.isnan(quality.y[0])
    assert quality.y[1:].tolist() == pytest.approx([0.2, 0.3])


def test_every_client_is_a_point(cell: Cell) -> None:
    chart = client_accuracies(cell)
    clouds = [series for series in chart.series if not series.label]
    assert [sorted(cloud.y.tolist()) for cloud in clouds] == [[50], pytest.approx([60, 70, 80, 90])]
    assert clouds[1].texts == ("client-0, seed 0", "client-1, seed 0", "client-0, seed 1", "client-1, seed 1")
    assert all(abs(cloud.x - place).max() < 0.5 for place, cloud in enumerate(clouds))
    assert chart.x.ticks == ("Local", "FedGKD")
    assert series_of(chart, "FedGKD").y.tolist() == pytest.approx([75])


def test_accuracy_against_what_was_spent(cell: Cell) -> None:
    traffic = series_of(accuracy_against_bytes(cell), "FedGKD")
    # 3 MB a round for each of 2 clients: 18 MB up to round 3, 12 MB up to round 2.
    assert (traffic.x.tolist(), traffic.y.tolist()) == ([15], pytest.approx([75]))
    time = series_of(accuracy_against_time(cell), "FedGKD")
    assert time.x.tolist() == [1.25]
    path = accuracy_against_time(cell).series[1]
    assert path.x.tolist() == [0.5, 1.0, 1.5]


def test_an_oracle_has_time_but_no_traffic(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "centralised")
    (cell,) = read_report(tmp_path).comparison.cells
    assert [chart.kind for chart in cell_charts(cell)] == ["convergence", "clients", "accuracy-time"]


def test_a_study_is_a_line_over_its_values(full: Report) -> None:
    chart = study_chart(full.studies[0])
    assert chart.x.ticks == ("0.1", "0.5")
    (line,) = chart.series
    assert line.y.tolist() == pytest.approx([80, 80])
    assert line.line


def test_big_clouds_are_thinned(tmp_path: Path) -> None:
    write_motivation(tmp_path / "motivation", nodes=2 * MOST_POINTS)
    chart = motivation_charts(read_report(tmp_path).records.motivations[0])[0]
    assert sum(len(series.x) for series in chart.series) == MOST_POINTS
    assert f"{MOST_POINTS} of {2 * MOST_POINTS} nodes are drawn." in chart.caption


def test_plotly_understands_every_chart(full: Report) -> None:
    for chart in full.charts():
        spec = chart_spec(chart, legend=True)
        for trace in spec["data"]:
            for part in (trace["line"], trace.get("marker", {}), trace.get("error_y", {})):
                if part.get("color") == INK:
                    part["color"] = "black"
            if trace.get("fillcolor") == INK:
                trace["fillcolor"] = "black"
            if "line" in trace.get("marker", {}):
                trace["marker"]["line"]["color"] = "black"
        go.Figure(spec["data"], spec["layout"])  # raises for anything that plotly does not know


def test_page_and_paper_show_the_same(cell: Cell) -> None:
    chart = convergence(cell)
    shown = {trace["name"]: trace for trace in chart_spec(chart, legend=False)["data"] if trace.get("name")}
    for series in chart.series:
        assert shown[series.label]["y"] == pytest.approx(series.y.tolist())


def test_long_lines_have_bands_and_points_have_bars(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / str(seed), seed=seed, rounds=20, per_client=[0.8 + 0.01 * seed])
    (cell,) = read_report(tmp_path).comparison.cells
    band, line = chart_spec(convergence(cell), legend=False)["data"]
    assert band["fill"] == "toself"
    assert len(band["x"]) == 2 * len(line["x"])
    point = chart_spec(accuracy_against_bytes(cell), legend=False)["data"][-1]
    assert point["error_y"]["array"] == pytest.approx([0.707107])


@pytest.mark.parametrize(("rounds", "marks"), [(4, {"dtick": 1}), (30, {})])
def test_there_are_no_half_rounds(tmp_path: Path, rounds: int, marks: dict[str, int]) -> None:
    write_run(tmp_path / "a", rounds=rounds, max_rounds=rounds)
    (cell,) = read_report(tmp_path).comparison.cells
    axis = chart_spec(convergence(cell), legend=False)["layout"]["xaxis"]
    assert {name: value for name, value in axis.items() if name == "dtick"} == marks


def test_files_of_every_kind(full: Report, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    chart = cell_charts(full.comparison.cells[0])[0]
    files = save_chart(chart, out)
    assert [path.suffix[1:] for path in files] == list(FORMATS)
    png, svg, pdf = (path.read_bytes() for path in files)
    assert png.startswith(b"\x89PNG")
    assert b"test accuracy (%)</text>" in svg  # text stays text
    assert pdf.startswith(b"%PDF")
    assert b"/FontFile2" in pdf  # fonts are embedded
    again = tmp_path / "again"
    again.mkdir()
    assert [path.read_bytes() for path in save_chart(chart, again)] == [png, svg, pdf]


def test_every_figure_is_drawn(full: Report, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for chart in full.charts():
        save_chart(chart, out)
    (collaboration,) = full.collaborations
    save_heat_maps(collaboration, out)
    save_network(collaboration, out)
    place = "cora-non-overlapping-3"
    assert {path.stem for path in out.iterdir()} == {
        f"convergence-{place}",
        f"clients-{place}",
        f"accuracy-bytes-{place}",
        f"accuracy-time-{place}",
        f"relation-quality-{place}",
        "study-tau",
        "motivation-motivation-original",
        "motivation-motivation-flipped",
        f"relations-{place}-fedgkd",
        f"network-{place}-fedgkd",
    }


def test_names_are_taken_as_they_are(tmp_path: Path) -> None:
    """A dollar sign would start a formula in matplotlib."""
    write_run(tmp_path / "runs" / "a", "mine:Cash$and$", per_client=[0.8])
    chart = convergence(read_report(tmp_path / "runs").comparison.cells[0])
    svg = save_chart(chart, tmp_path)[1].read_text()
    assert "Cash$and$" in svg

"""The page as text: whole, self-contained, and safe from what it shows."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from fedgkd.reporting.html import page
from fedgkd.reporting.report import read_report
from tests.reporting.written import write_comparison, write_motivation, write_run


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def without_plotly(text: str) -> str:
    """The page without the library, which is not ours."""
    start = text.index("<script>/**")
    return text[:start] + text[text.index("</script>", start) :]


def test_plotly_is_there_once_and_nothing_is_fetched(tmp_path: Path) -> None:
    write_comparison(tmp_path)
    text = page(read_report(tmp_path))
    assert text.count("* plotly.js v") == 1
    ours = without_plotly(text)
    assert "http:" not in ours
    assert "https:" not in ours
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", ours)
    assert "default-src 'none'" in ours


def test_every_place_of_the_template_is_filled(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    assert "{{" not in re.sub(r"<script>.*?</script>", "", page(read_report(tmp_path)), flags=re.DOTALL)


def test_names_cannot_break_out(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>{{data}}"
    write_run(tmp_path / "a", f"mine:{evil}", result={"client_names": [evil, "b", "c"], "dataset": evil})
    text = page(read_report(tmp_path))
    assert "<script>alert" not in text
    assert data_of(text)["cells"][0]["charts"][1]["data"][0]["text"][0] == html.escape(f"{evil}, seed 0")


def test_sections_are_those_that_have_something_to_show(tmp_path: Path) -> None:
    write_motivation(tmp_path / "motivation")
    sections = re.findall(r'<section id="(\w+)"', page(read_report(tmp_path)))
    assert sections == ["motivation"]
    write_comparison(tmp_path / "runs")
    sections = re.findall(r'<section id="(\w+)"', page(read_report(tmp_path)))
    assert sections == ["results", "federation", "collaboration", "motivation", "runs"]


def test_warnings_and_failures_are_on_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "a", version="1")
    write_run(tmp_path / "b", "local", version="2")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "failed.json").write_text('{"error": "out of <memory>"}')
    text = page(read_report(tmp_path))
    assert "The runs are of different versions of fedgkd" in text
    assert "out of &lt;memory&gt;" in text
    assert "Runs: 2 finished, 1 failed." in text


def test_the_page_stays_small(tmp_path: Path) -> None:
    """A hundred clients and rounds would be 12 MB of matrices alone."""
    write_run(
        tmp_path / "a", per_client=[0.8] * 100, relations="RSQ", rounds=100, labels=[[k, 100] for k in range(100)]
    )
    text = page(read_report(tmp_path))
    assert len(without_plotly(text)) < 5_000_000
    (collaboration,) = data_of(text)["collaborations"]
    assert "rounds are kept here" in collaboration["notes"][0]

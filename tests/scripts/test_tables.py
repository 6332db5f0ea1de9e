"""The figures on the pages are those of the records."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.distances import draw_distances
from scripts.tables import PAGES, PICTURE, ROOT, evidence_cells


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_those_of_the_records(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert PAGES[name](page) == page, "run: .venv/bin/python -m scripts.tables"


@pytest.mark.parametrize(
    ("name", "written", "wrong"),
    [
        ("evidence.md", "| Photo 5 | 94.8 |", "| Photo 5 | 84.8 |"),
        ("findings.md", "\nFedGKD is first in ", "\nFedGKD is first in all but "),
    ],
)
def test_a_changed_figure_is_put_right(name: str, written: str, wrong: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert written in page
    assert PAGES[name](page.replace(written, wrong)) == page


def test_the_picture_says_what_the_records_say(tmp_path: Path) -> None:
    file = tmp_path / "distances.svg"
    draw_distances(evidence_cells(), file)
    assert words(file) == words(PICTURE), "run: .venv/bin/python -m scripts.tables"
    assert {"Cora, overlapping 50", "FedGKD", "84.3", "−0.3", "−4.2*"} <= set(words(file))


def words(file: Path) -> list[str]:
    """All that is written in a picture, in its order."""
    texts = ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).strip() for text in texts]

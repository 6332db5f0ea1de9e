"""The figures on the pages are those of the records."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from fedgkd.experiments.ablate import RELATION_VARIANTS
from scripts.pictures import VARIANTS, draw_distances, draw_relation
from scripts.tables import DISTANCES, PAGES, RELATION, ROOT, at_its_best, evidence, relation_qualities


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_those_of_the_records(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert PAGES[name](page) == page, "run: .venv/bin/python -m scripts.tables"


@pytest.mark.parametrize(
    ("name", "written", "wrong"),
    [
        ("evidence.md", "| Cora 20 | 0.852 |", "| Cora 20 | 0.952 |"),
        ("evidence.md", "| Photo 5 | 94.8 |", "| Photo 5 | 84.8 |"),
        ("findings.md", "\nFedGKD is first in ", "\nFedGKD is first in all but "),
    ],
)
def test_a_changed_figure_is_put_right(name: str, written: str, wrong: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert written in page
    assert PAGES[name](page.replace(written, wrong)) == page


def test_the_picture_of_the_methods_says_what_the_records_say(tmp_path: Path) -> None:
    file = tmp_path / "distances.svg"
    draw_distances(list(evidence().values()), at_its_best(), file)
    assert words(file) == words(DISTANCES), "run: .venv/bin/python -m scripts.tables"
    assert {"Cora, overlapping 50", "FedGKD", "84.3", "−0.3", "−4.2*"} <= set(words(file))


def test_the_picture_of_the_relation_says_what_the_records_say(tmp_path: Path) -> None:
    file = tmp_path / "relation.svg"
    draw_relation(relation_qualities(), file)
    assert words(file) == words(RELATION), "run: .venv/bin/python -m scripts.tables"
    assert {"Cora 20", "our default", "mean", "0.85", "0.07"} <= set(words(file))


def test_the_picture_has_every_variant_of_the_study() -> None:
    assert set(VARIANTS) == {*RELATION_VARIANTS, "FED-PUB"}


def words(file: Path) -> list[str]:
    """All that is written in a picture, in its order."""
    texts = ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).strip() for text in texts]

"""The figures on the pages are those of the records."""

from __future__ import annotations

import pytest

from scripts.tables import PAGES, ROOT, findings_page


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_those_of_the_records(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert PAGES[name](page) == page, "run: .venv/bin/python -m scripts.tables"


def test_a_changed_figure_is_put_right() -> None:
    page = (ROOT / "docs" / "findings.md").read_text()
    changed = page.replace("| Cora | 5 | **84.3** |", "| Cora | 5 | **94.3** |")
    assert changed != page
    assert findings_page(changed) == page

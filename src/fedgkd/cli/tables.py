"""Tables of a report on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from fedgkd.cli import console

if TYPE_CHECKING:
    from fedgkd.reporting.tables import Table


def print_table(table: Table) -> None:
    """A table with its notes; one that is too wide is cut into several, each with the first column."""
    from fedgkd.reporting.formats import marked, plain_heads

    heads = plain_heads(table)
    starred = [any(row[place].worse for row in table.rows) for place in range(len(heads))]
    # Figures without a star make room for it, so that they stay in line.
    texts = [
        [marked(value) + "  " * (star and not value.worse) for value, star in zip(row, starred, strict=True)]
        for row in table.rows
    ]
    widths = [max(len(text) for text in (*head.split(), *(row[k] for row in texts))) for k, head in enumerate(heads)]
    for places in _pages(widths, console.out.width):
        printed = console.new_table(table.title)
        for place in places:
            numeric = table.columns[place].numeric
            printed.add_column(heads[place], justify="right" if numeric else "left", style=None if place else "bold")
        for row, row_texts in zip(table.rows, texts, strict=True):
            printed.add_row(*(Text(row_texts[place], style="bold" if row[place].best else "") for place in places))
        console.out.print(printed)
    for note in table.notes:
        console.out.print(note, style="dim", soft_wrap=True)


def _pages(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns side by side as far as there is room, the first one on every page."""
    pages: list[list[int]] = []
    left = 0
    for place, width in enumerate(widths[1:], 1):
        if not pages or left < width + 1:
            pages.append([0])
            left = room - widths[0] - 1
        pages[-1].append(place)
        left -= width + 1
    return pages

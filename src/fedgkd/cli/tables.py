"""Tables of a report on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from fedgkd.cli import console

if TYPE_CHECKING:
    from fedgkd.reporting.report import Report
    from fedgkd.reporting.tables import Table


_MOST_FEDERATIONS = 4
_GAP = 2
"""Between columns."""


def print_report(found: Report) -> None:
    """Warnings and tables of a report; the tables of single federations only while there are few."""
    print_warnings(found)
    few = len(found.comparison.cells) <= _MOST_FEDERATIONS
    for table in found.all_tables:
        if few or not table.cell:
            print_table(table)


def print_warnings(found: Report) -> None:
    for warning in found.warnings:
        console.err.print(f"warning: {warning}", soft_wrap=True)


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
    # A head may break between words, a figure may not.
    least = [max(len(text) for text in (*head.split(), *(row[k] for row in texts))) for k, head in enumerate(heads)]
    for places in _pages(least, console.out.width):
        printed = console.new_table(table.title)
        widths = _widths([least[place] for place in places], [len(heads[place]) for place in places], console.out.width)
        for place, width in zip(places, widths, strict=True):
            justify: Literal["left", "right"] = "right" if table.columns[place].numeric else "left"
            printed.add_column(heads[place], justify=justify, style=None if place else "bold", width=width)
        for row, row_texts in zip(table.rows, texts, strict=True):
            printed.add_row(*(Text(row_texts[place], style="bold" if row[place].best else "") for place in places))
        console.out.print(printed)
    for note in table.notes:
        console.out.print(note, style="dim", soft_wrap=True)


def _pages(least: Sequence[int], room: int) -> list[list[int]]:
    """Columns side by side as far as there is room, the first one on every page."""
    pages: list[list[int]] = []
    left = 0
    for place, width in enumerate(least[1:], 1):
        if not pages or left < width + _GAP:
            pages.append([0])
            left = room - least[0] - _GAP
        pages[-1].append(place)
        left -= width + _GAP
    return pages


def _widths(least: Sequence[int], heads: Sequence[int], room: int) -> list[int]:
    """Heads in one line if there is room; otherwise all columns get an equal share of what is left."""
    wanted = [max(pair) for pair in zip(least, heads, strict=True)]
    if sum(wanted) + _GAP * len(wanted) <= room:
        return wanted
    share = max(0, room - sum(least) - _GAP * len(least)) // len(least)
    return [min(width, narrow + share) for width, narrow in zip(wanted, least, strict=True)]

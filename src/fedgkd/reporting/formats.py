"""Tables written as Markdown, LaTeX (booktabs) and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import groupby

from fedgkd.reporting.tables import Column, Table, Value

_LATEX_COLUMNS = 9
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "τ": r"$\tau$",
    "γ": r"$\gamma$",
}


def plain_heads(table: Table) -> list[str]:
    """Heads for formats without a second line of them."""
    return [f"{column.group}: {column.head}" if column.group else column.head for column in table.columns]


def marked(value: Value) -> str:
    return value.text + " *" * value.worse


def to_markdown(table: Table) -> str:
    lines = [
        f"## {table.title}",
        "",
        _markdown_row(plain_heads(table)),
        _markdown_row(["---:" if column.numeric else "---" for column in table.columns]),
        *(_markdown_row([_markdown_value(value) for value in row]) for row in table.rows),
        "",
        *(f"{_markdown_text(note)}  " for note in table.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |"


def _markdown_value(value: Value) -> str:
    text = _markdown_text(marked(value))
    return f"**{text}**" if value.best else text


def _markdown_text(text: str) -> str:
    return text.replace("*", r"\*")


def to_latex(table: Table) -> str:
    """A floating table; a very wide one goes on below, as in the paper. Needs the package booktabs."""
    others = range(1, len(table.columns))
    blocks = [[0, *others[start : start + _LATEX_COLUMNS]] for start in range(0, len(others), _LATEX_COLUMNS)]
    notes = " ".join(map(latex_text, table.notes))
    lines = [
        r"\begin{table*}[tb]",
        r"  \centering\small",
        "  \\\\[1ex]\n".join(_latex_block(table, places) for places in blocks),
        rf"  \caption{{{latex_text(table.title)}. {notes}}}",
        rf"  \label{{tab:{table.key}}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_block(table: Table, places: Sequence[int]) -> str:
    columns = [table.columns[place] for place in places]
    aligned = "".join("r" if column.numeric else "l" for column in columns)
    lines = [
        rf"  \begin{{tabular}}{{@{{}}{aligned}@{{}}}}",
        r"    \toprule",
        *(_latex_groups(columns) if any(column.group for column in columns) else ()),
        _latex_row([_latex_head(column) for column in columns]),
        r"    \midrule",
        *(_latex_row([_latex_value(row[place]) for place in places]) for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
    ]
    return "\n".join(lines)


def _latex_groups(columns: Sequence[Column]) -> list[str]:
    heads, rules, position = [], [], 1
    for name, span in _groups(columns):
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{latex_text(name)}}}" if name else " & ".join([""] * span))
        if name:
            rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    return [_latex_row(heads), "    " + " ".join(rules)]


def _latex_head(column: Column) -> str:
    """Long heads take two lines."""
    first, comma, second = column.head.partition(", ")
    if not comma:
        return latex_text(column.head)
    return rf"\shortstack[{'r' if column.numeric else 'l'}]{{{latex_text(first)}\\{latex_text(second)}}}"


def _latex_row(texts: Sequence[str]) -> str:
    return "    " + " & ".join(texts) + r" \\"


def _latex_value(value: Value) -> str:
    text = latex_text(value.text)
    # Figures line up although some carry a star: it takes no room.
    text += r"\rlap{$^{*}$}" * value.worse
    return rf"\textbf{{{text}}}" if value.best else text


def latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def to_html(table: Table) -> str:
    """A table with a caption, heads with scopes, and its notes below."""
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
    belongs = f' data-cell="{html.escape(table.cell)}"' if table.cell else ""
    return (
        f'<figure class="table" id="{html.escape(table.key)}"{belongs}>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(table.title)}"><table>'
        f"<caption>{html.escape(table.title)}</caption>{_html_head(table.columns)}"
        f"<tbody>{''.join(_html_row(table.columns, row) for row in table.rows)}</tbody></table></div>"
        + (f'<figcaption><ul class="notes">{notes}</ul></figcaption>' if notes else "")
        + "</figure>\n"
    )


def _html_head(columns: Sequence[Column]) -> str:
    """Columns with a group have two lines of heads, the others one that spans both."""
    if not any(column.group for column in columns):
        return f"<thead><tr>{''.join(_html_column(column) for column in columns)}</tr></thead>"
    above, below = "", ""
    position = 0
    for name, span in _groups(columns):
        members = columns[position : position + span]
        position += span
        if name:
            above += f'<th scope="colgroup" colspan="{span}">{html.escape(name)}</th>'
            below += "".join(_html_column(column) for column in members)
        else:
            above += "".join(_html_column(column, ' rowspan="2"') for column in members)
    return f"<thead><tr>{above}</tr><tr>{below}</tr></thead>"


def _html_column(column: Column, span: str = "") -> str:
    return f'<th scope="col"{_kind(column)}{span}>{html.escape(column.head)}</th>'


def _kind(column: Column) -> str:
    return ' class="number"' if column.numeric else ""


def _html_row(columns: Sequence[Column], row: Sequence[Value]) -> str:
    head, *values = row
    cells = "".join(
        f"<td{_kind(column)}>{_html_value(value)}</td>" for column, value in zip(columns[1:], values, strict=True)
    )
    return f'<tr><th scope="row">{_html_value(head)}</th>{cells}</tr>'


def _html_value(value: Value) -> str:
    text = html.escape(value.text)
    if value.worse:
        text += '<abbr title="the best method is better by more than chance">*</abbr>'
    return f"<strong>{text}</strong>" if value.best else text


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Names above the heads, with the number of columns below each."""
    return [(name, len(list(same))) for name, same in groupby(columns, key=lambda column: column.group)]

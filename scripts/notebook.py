"""Makes examples/tutorial.ipynb, or the file named as argument, from docs/tutorial.md: there is one tutorial."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(python|bash)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def to_notebook(tutorial: str) -> dict[str, Any]:
    """Code blocks become cells to run, what stands between them becomes text."""
    pieces = _BLOCK.split(tutorial)  # text, language, code, text, language, code, …, text
    cells = [_text(pieces[0])]
    for language, code, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        cells.append(_code(code if language == "python" else f"%%bash -e\n{code}"))
        cells.append(_text(text))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": [cell | {"id": f"cell-{number}"} for number, cell in enumerate(filter(_source, cells))],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _source(cell: dict[str, Any]) -> list[str]:
    return list(cell["source"])


def _text(text: str) -> dict[str, Any]:
    linked = re.sub(r"\]\((\w[\w/-]*\.md)", r"](../docs/\1", text.strip())
    return {"cell_type": "markdown", "metadata": {}, "source": linked.splitlines(keepends=True)}


def _code(code: str) -> dict[str, Any]:
    lines = code.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines}


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "examples" / "tutorial.ipynb"
    notebook = to_notebook((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    out.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

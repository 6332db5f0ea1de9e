"""JSON from outside."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from fedgkd.errors import DataError
from fedgkd.parsing import parse_json
from tests.fuzz.core import Target
from tests.fuzz.values import change_tree, to_json


def change(draw: random.Random, tree: Any) -> None:
    change_tree(draw, tree, raw=True)


class Json(Target):
    name = "json"
    mutators = (change,)

    def make(self, draw: random.Random) -> Any:
        return {"name": "x", "numbers": [1, 2.5, -3, 1e-9], "nested": {"deep": [{"key": None}, True]}, "seed": 7}

    def write(self, content: Any, folder: Path) -> Path:
        path = folder / "some.json"
        path.write_text(to_json(content), encoding="utf-8", errors="surrogatepass")
        return path

    def use(self, given: Path) -> Any:
        try:
            return parse_json(given.read_bytes())
        except ValueError as error:
            raise DataError(f"{given}: {error}") from error

    def wrong(self, given: Path, content: Any, result: Any) -> str | None:
        text = given.read_bytes()
        if json.loads(text) != result or json.dumps(json.loads(text)) != json.dumps(result):
            return "reads otherwise than json.loads"
        try:
            json.dumps(result, allow_nan=False)
        except ValueError as problem:
            return f"accepted although {problem}"
        return None

"""Settings: as a TOML file, and as options, ``--set`` and ``--synthetic`` of the command line."""

from __future__ import annotations

import json
import math
import random
import re
import tomllib
from pathlib import Path
from typing import Any

from fedgkd.experiments.config import Config, make_config, read_config_file
from tests.fuzz.core import Target, command
from tests.fuzz.values import TEXTS

LITERALS = (
    "1_000", "0x10", "0o7", "0b1", "inf", "-inf", "nan", "1e400", "-0.0", "+5", "0.0", "-0", "1e-400", "9" * 30,
    "9" * 5000, "0x" + "f" * 5000, "[1]", "[" * 1000 + "]" * 1000, "{a = 1}", "2020-01-01", "07:32:00", '""', '"none"',
    '"5"', '"٣"', '"1_000"', '"a\\nb"', '"\\u0000"', "true", "false", "'x'", '"""a\nb"""', "1.", ".5", "", "yes",
    "'" + "x" * 300 + "'",
)  # fmt: skip
PLAIN = (
    "rounds",
    "lr",
    "tau",
    "algorithm",
    "dataset",
    "decay_unseen",
    "clients",
    "seed",
    "participation",
    "hidden",
    "model",
)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def misread(config: Config, name: str, given: Any) -> str | None:
    """How a setting differs from what was given for it, read in the plainest way."""
    found = config.values()[name]
    if isinstance(given, str) and not isinstance(found, str):
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        text = given.strip()
        if found is None:
            return None if text == "none" else f"{name}: {given!r} became none"
        if isinstance(found, bool):
            return None if words.get(text.lower(), {"1": True, "0": False}.get(text)) is found else f"{name} is {found}"
        if not _DECIMAL.fullmatch(text):
            return f"{name}: {given[:40]!r} became {found}"
        given = float(text)
    if isinstance(found, str):
        if any(ord(sign) < 32 or 0xD800 <= ord(sign) < 0xE000 for sign in found):
            return f"{name} has control characters"
        return None if isinstance(given, str) and found == given.strip() else f"{name}: {given!r} became {found!r}"
    if found is None:
        return None if given == "none" else f"{name}: {given!r} became none"
    if isinstance(given, bool) is not isinstance(found, bool):
        return f"{name}: {given!r} became {found!r}"
    if isinstance(found, float) and (not math.isfinite(found) or str(found) == "-0.0"):
        return f"{name} is {found}"
    return None if math.isclose(found, given, rel_tol=1e-12) else f"{name}: {given!r} became {found!r}"


def other_literal(draw: random.Random, lines: dict[str, str]) -> None:
    lines[draw.choice([*lines, "unknown", "a.b", "[table]"])] = draw.choice(LITERALS)


def other_name(draw: random.Random, lines: dict[str, str]) -> None:
    old = draw.choice(list(lines))
    lines[draw.choice([old + "x", old.upper(), f'"{old}"', "é", '""', old + " =", "[" + old, "#" + old])] = lines.pop(
        old
    )


class Toml(Target):
    name = "toml"
    mutators = (other_literal, other_name)

    def make(self, draw: random.Random) -> dict[str, str]:
        values = make_config(("x", {"algorithm": draw.choice(["fedgkd", "local", "fedprox", "gcfl"])})).values()
        kept = draw.sample(sorted(set(values) - {"algorithm"}), 8)
        return {name: json.dumps(values[name]) for name in ["algorithm", *kept] if values[name] is not None}

    def write(self, content: dict[str, str], folder: Path) -> Path:
        path = folder / "own.toml"
        text = "".join(f"{name} = {value}\n" for name, value in content.items())
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return path

    def use(self, given: Path) -> Config:
        return make_config((str(given), read_config_file(given)))

    def wrong(self, given: Path, content: Any, result: Config) -> str | None:
        said = tomllib.loads(given.read_text(encoding="utf-8"))
        said.pop("preset", None)
        return next(filter(None, (misread(result, name, value) for name, value in said.items())), None)


WORDS = (
    *TEXTS[:-1], "1_000", "１２", "-0", "1e400", "nan", "inf", "-inf", "1e-400", " 5", "5 ", "+5", "0x5", "1e3", "5.0",
    "--", "-", "none", "None", "true", "TRUE", "0", "-1", "9" * 19, "9" * 400, "0.5", ".5", "1,5", "5=5", "=",
    "\u00a05", "٠", "²",
)  # fmt: skip


def other_word(draw: random.Random, options: list[list[str]]) -> None:
    draw.choice(options)[1] = draw.choice(WORDS).replace("\0", "")[:100_000]


def other_option(draw: random.Random, options: list[list[str]]) -> None:
    flag = draw.choice(
        ["--rounds", "--bogus", "--round", "--graphs", "--overlapping", "--set", "-x", "--config", "--preset"]
    )
    options.append([flag, draw.choice(WORDS).replace("\0", "")[:1000]])


def other_assignment(draw: random.Random, options: list[list[str]]) -> None:
    name = draw.choice([*PLAIN, "unknown", "", "a b", "x" * 300])
    options.append(["--set", f"{name}={draw.choice(WORDS)}".replace("\0", "")[:100_000]])


def other_size(draw: random.Random, options: list[list[str]]) -> None:
    name = draw.choice(["num_nodes", "homophily", "average_degree", "seed", "bogus", ""])
    options.append(["--synthetic", f"{name}={draw.choice(WORDS)}".replace("\0", "")[:100_000]])


class Options(Target):
    """What ``fedgkd run`` makes of its options, without the run."""

    name = "options"
    mutators = (other_word, other_option, other_assignment, other_size)
    damage = False
    names_file = False

    def make(self, draw: random.Random) -> list[list[str]]:
        options = [
            ["--clients", str(draw.randrange(1, 9))],
            ["--rounds", str(draw.randrange(1, 99))],
            ["--participation", str(draw.choice([0.5, 1, 0.25]))],
            ["--seed", str(draw.randrange(9))],
            ["--model", draw.choice(["gcn", "sage"])],
            ["--dataset", "synthetic"],
            ["--set", f"lr={draw.choice(['0.1', '1e-3'])}"],
        ]
        return draw.sample(options, 4)

    def write(self, content: list[list[str]], folder: Path) -> list[str]:
        return [word for option in content for word in option]

    def use(self, given: list[str]) -> Any:
        text = command("run", "--explain", "--json", *given)
        return {row["setting"]: row["value"] for row in json.loads(text)} if text.startswith("[") else None

    def wrong(self, given: list[str], content: list[list[str]], result: Any) -> str | None:
        if result is None:  # help
            return None
        for flag, word in content:
            name, text = (
                word.partition("=")[::2] if flag == "--set" else (flag.removeprefix("--").replace("-", "_"), word)
            )
            last = [w for f, w in content if f == flag][-1]
            found = result.get(name.strip(" "))
            if flag in ("--set", "--synthetic", "--config", "--preset", "--overlapping") and flag != "--set":
                continue
            if flag != "--set" and (last != word or any(w.startswith(f"{name}=") for f, w in content if f == "--set")):
                continue
            if isinstance(found, bool) or found is None:
                continue
            if isinstance(found, int | float):
                if not _DECIMAL.fullmatch(text.strip(" \t\n")) or not math.isclose(found, float(text), rel_tol=1e-12):
                    return f"{flag} {word[:60]!r} became {found}"
            elif found != text.strip(" \t\n") and not Path(text).exists():
                return f"{flag} {word[:60]!r} became {found[:60]!r}"
        return None

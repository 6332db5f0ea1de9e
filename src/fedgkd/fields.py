"""What the fields of a record may hold: one check for every record that is read back from disk."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fedgkd.errors import RunError, shortened

Kind = Callable[[Any], bool]
"""Whether a value that JSON or TOML can hold is one of the kind."""

_LONGEST = 4096
_ROUNDING, _FIVE_DIGITS = 1e-6, 1e-4


def whole(low: int = 0) -> Kind:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low


def number(low: float = -math.inf, high: float = math.inf) -> Kind:
    def fits(value: Any) -> bool:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        return real and math.isfinite(value) and low - _ROUNDING <= value <= high + _ROUNDING

    return fits


def text(value: Any) -> bool:
    """One line that can be printed, and is not empty."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()


def truth(value: Any) -> bool:
    return isinstance(value, bool)


def plain_value(value: Any) -> bool:
    """What a setting may be."""
    return value is None or truth(value) or number()(value) or value == "" or text(value)


def optional(kind: Kind) -> Kind:
    return lambda value: value is None or kind(value)


def listed(kind: Kind) -> Kind:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def by_name(kind: Kind) -> Kind:
    return lambda value: isinstance(value, dict) and all(text(name) and kind(part) for name, part in value.items())


SHARE = optional(number(0, 1))
"""An accuracy or another share; null where there were no nodes to measure it on."""

RESULT: dict[str, Kind] = {
    "algorithm": text,
    "dataset": text,
    "setting": text,
    "clients": whole(1),
    "seed": whole(),
    "scored_model": text,
    "rounds": whole(1),
    "best_round": whole(),
    "test_accuracy": SHARE,
    "val_accuracy": SHARE,
    "test_accuracy_weighted": SHARE,
    "test_accuracy_received": SHARE,
    "test_accuracy_last": SHARE,
    "test_macro_f1": SHARE,
    "per_client": listed(SHARE),
    "client_names": listed(text),
    "bytes_up": whole(),
    "bytes_down": whole(),
    "seconds": number(0),
    "partition_hash": optional(text),
    "versions": by_name(text),
}
"""The figures that every result has."""

FEATURES = "bytes_features"
"""Bytes that were uploaded beside weights, counts and metrics."""

MORE: dict[str, Kind] = {
    FEATURES: whole(),
    "best_round_received": optional(whole()),
    "chosen_by_validation": truth,
    "clients_never_present": whole(),
    "clients_without_val_nodes": whole(),
    "clients_without_test_nodes": whole(),
    "parameters": whole(),
    "parameters_shared": whole(),
    "local_epochs": whole(),
    "epochs_before_round_1": whole(),
}
"""Those that the result of another version may be without."""


def check_fields(
    where: str,
    record: Mapping[str, Any],
    kinds: Mapping[str, Kind],
    remedy: str,
    more: Mapping[str, Kind] = MappingProxyType({}),
) -> None:
    """Raise a :class:`RunError` unless all fields are there, and they and those of ``more`` hold what they may."""
    missing = [name for name in kinds if name not in record]
    if missing:
        raise RunError(f"{where} has no {', '.join(missing)}: it is not of this version of fedgkd; {remedy}")
    for name, kind in {**more, **kinds}.items():
        if name in record and not kind(record[name]):
            raise _strange(where, name, record[name], remedy)


def _strange(where: str, name: str, value: Any, remedy: str) -> RunError:
    return RunError(f"{where}: {name} cannot be {shortened(json.dumps(value, default=str))}; {remedy}")


def check_result(where: str, result: Mapping[str, Any], remedy: str) -> None:
    """Raise a :class:`RunError` unless that is the result of a run, and its figures agree with each other."""
    check_fields(where, result, RESULT, remedy, MORE)
    for name in ("per_client", "client_names"):
        if len(result[name]) != result["clients"]:
            raise _strange(where, name, result[name], remedy)
    if len(set(result["client_names"])) < result["clients"]:
        raise RunError(f"{where}: two of client_names are the same; {remedy}")
    check_agreement(where, result, remedy)


def check_agreement(where: str, result: Mapping[str, Any], remedy: str) -> None:
    """Raise a :class:`RunError` if a best round is none of the rounds, or the mean accuracy not that of the clients."""
    for name in ("best_round", "best_round_received"):
        if (result.get(name) or 0) > result["rounds"]:
            raise RunError(f"{where}: {name} is {result[name]}, of {result['rounds']} rounds; {remedy}")
    known, said = [share for share in result["per_client"] if share is not None], result["test_accuracy"]
    if known and said is not None and not math.isclose(sum(known) / len(known), said, abs_tol=_FIVE_DIGITS):
        raise RunError(
            f"{where}: test_accuracy is {said}, but the mean of per_client is {sum(known) / len(known)}; {remedy}"
        )

"""The sites whose kit was used twice, as a file in the coordinator's kit: each with the alarm, until it is admitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import FederationError


def read_suspended(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FederationError(f"{file} cannot be read ({error}); remove it to admit all sites again") from error
    return {str(site): str(alarm) for site, alarm in found.items()} if isinstance(found, dict) else {}


def write_suspended(file: Path, sites: Mapping[str, str]) -> None:
    atomic_write_text(file, json.dumps(sites, indent=2) + "\n", FederationError)

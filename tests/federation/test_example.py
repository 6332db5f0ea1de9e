"""The example: three sites on one machine, from one graph to predictions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.federation.deployment import free_port

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "federation" / "three_sites.sh"


def test_three_sites_on_one_machine(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(EXAMPLE), str(tmp_path / "work"), str(free_port())],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "finished after 10 rounds" in done.stdout
    accuracies = re.findall(r"accuracy on the \d+ nodes with a label: ([\d.]+)%", done.stderr)
    assert len(accuracies) == 3
    assert all(float(accuracy) > 60 for accuracy in accuracies)
    for site in ("hospital-a", "hospital-b", "hospital-c"):
        assert (tmp_path / "work" / f"{site}.csv").read_text().startswith("node,class,p_0")
    assert not _alive(str(tmp_path))


def _alive(folder: str) -> list[str]:
    """Processes that still work in a folder, a moment later."""
    time.sleep(1.0)
    commands = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path))
    return [command.decode(errors="replace") for command in commands if folder.encode() in command]


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True

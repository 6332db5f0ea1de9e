"""The example: three sites on one machine, from one graph to predictions."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.federation.deployment import free_port, wait_until

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "federation" / "three_sites.sh"


def test_three_sites_on_one_machine(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(EXAMPLE), str(tmp_path / "work"), str(free_port())]
    code, said, complained = _run(command, os.environ | {"PATH": path}, seconds=240)
    assert code == 0, complained
    assert "finished after 10 rounds" in said
    accuracies = re.findall(r"accuracy on the \d+ nodes with a label: ([\d.]+)%", complained)
    assert len(accuracies) == 3
    assert all(float(accuracy) > 60 for accuracy in accuracies)
    for site in ("hospital-a", "hospital-b", "hospital-c"):
        assert (tmp_path / "work" / f"{site}.csv").read_text().startswith("node,class,p_0")
    wait_until("every process has ended", lambda: not _alive(str(tmp_path)), 10)


def _run(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int, str, str]:
    """Exit code and output; what takes longer is told to stop with all that it started."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, complained = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            said, complained = process.communicate()
        return process.returncode, said, complained


def _alive(folder: str) -> list[str]:
    """Processes that still work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            command = path.read_text(errors="replace")
            found += [command] if folder in command else []
    return found

"""What the foreground processes do besides waiting."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from fedgkd.federation.processes import tidy


def test_folders_of_old_jobs_are_removed_and_nothing_else(tmp_path: Path) -> None:
    jobs = [str(UUID(int=number)) for number in range(5)]
    for age, name in enumerate([*jobs, "run", "startup"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*jobs[2:], "run", "startup"]

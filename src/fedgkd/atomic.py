"""Files appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedgkd.errors import FedGKDError


@contextmanager
def atomic_write(path: Path, error: type[FedGKDError]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` if the block succeeds, else remove it.

    Raises:
        FedGKDError: Of class ``error``, in one sentence, where the system refuses (disk full, no permission).
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as problem:
        raise error(f"cannot write {path}: {problem.strerror or problem}") from problem
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str, error: type[FedGKDError]) -> None:
    with atomic_write(path, error) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(path: Path, error: type[FedGKDError]) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; it takes the place of ``path`` if the block succeeds, else it goes.

    A folder that ``path`` already names is replaced, with all that it holds.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            path.rename(temporary / ".replaced")
        temporary.rename(path)
        shutil.rmtree(path / ".replaced", ignore_errors=True)
    except OSError as problem:
        raise error(f"cannot write {path}: {problem.strerror or problem}") from problem
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

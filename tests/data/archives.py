"""A small archive in the layout in which the Open Graph Benchmark publishes ogbn-arxiv."""

import gzip
import zipfile
from pathlib import Path

OGB = {
    "edge": "0,1\n2,1\n3,0\n1,0\n",
    "node-feat": "0.5,-1.25\n0.1,0.0\n-0.002,3\n1e-3,2\n",
    "node-label": "1\n0\n2\n1\n",
    "num-node-list": "4\n",
    "num-edge-list": "4\n",
}


def write_ogb(path: Path, **changed: bytes | str) -> Path:
    """Write it, with the content of some members changed: text is compressed, bytes are taken as they are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**OGB, **{key.replace("_", "-"): value for key, value in changed.items()}}.items():
            content = gzip.compress(text.encode()) if isinstance(text, str) else text
            archive.writestr(f"arxiv/raw/{name}.csv.gz", content)
        archive.writestr("arxiv/split/time/train.csv.gz", gzip.compress(b"0\n"))
    return path

"""Operator tables as NeuSight publishes them."""

from __future__ import annotations

import gzip
from pathlib import Path

HEAD = "OPName,Latency,Device,Torch Version,CUDNN Version,Kernel Name,Grid x,CUDA Version,"


def table(folder: Path, dims: str, *lines: str, licence: str = "MIT License\n\nCopyright\n") -> Path:
    """A table within a set."""
    path = folder / "neusight" / "train" / "T.csv.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / "neusight" / "LICENSE").write_text(licence)
    with gzip.open(path, "wt") as file:
        file.write("\n".join([HEAD + dims, *lines]) + "\n")
    return path


def row(operator: str, ms: object, *dims: object) -> str:
    """A line of a table."""
    return f'{operator},{ms},Tesla T4,p2.1.0,8902,"void k<4, float>",1,cu121,' + ",".join(map(str, dims))

"""What lies in the folder of an exported model: its interface, what it needs, and a hash of every file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from daceml.deployment.size_conditions import SizeConditions
from daceml.errors import BundleError

FORMAT = 2
FILE = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or a result: an array in row-major order.

    Attributes:
        dtype: as torch calls it, "float32".
        code: torch's number of it.
        shape: ints, or texts over the sizes of inputs.
    """

    name: str
    dtype: str
    code: int
    shape: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class ModelManifest:
    """An exported model.

    Attributes:
        name: of the library, and what its functions begin with.
        model: class of the module.
        sizes: of inputs that may differ from call to call, and what must hold of them; the library checks it.
        libtorch: whether the library calls torch's.
        needs: shared libraries that the loader must find.
        features: of the processor, as gcc names them.
        structures: "call" and "result" as `torch.utils._pytree` writes them.
        leaves: "call" and "result": number of a tensor, or {"value": ...}.
        libraries: versions of daceml, torch and dace that made it.
        program: the key of the compiled program.
        files: name -> SHA-256.
    """

    name: str
    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    sizes: SizeConditions
    libtorch: bool
    needs: tuple[str, ...]
    features: tuple[str, ...]
    structures: dict[str, str]
    leaves: dict[str, list[Any]]
    libraries: dict[str, str]
    program: str
    files: dict[str, str]

    def save(self, folder: Path) -> str:
        """Write it; returns its own SHA-256."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def read(cls, folder: Path, *, sha256: str = "") -> ModelManifest:
        """Read it, and check it and all files against their hashes.

        Args:
            sha256: of the manifest itself, where the caller knows it; empty where not.
        Raises:
            BundleError: something is missing, is malformed or has another hash.
        """
        path = folder / FILE
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BundleError(
                f"{folder} is no exported model",
                why=str(error),
                fix="give the folder that daceml export made",
            ) from error
        found = hashlib.sha256(data).hexdigest()
        if sha256 and found != sha256.lower():
            raise _changed(path, sha256.lower(), found)
        manifest = cls._parsed(data, path)
        for name, expected in manifest.files.items():
            file = folder / name
            if Path(name).name != name or not file.is_file():
                raise BundleError(
                    f"{folder} has no file {name}", why="its manifest names it", fix="export the model again"
                )
            if (has := file_sha256(file)) != expected:
                raise _changed(file, expected, has)
        return manifest

    @classmethod
    def _parsed(cls, data: bytes, path: Path) -> ModelManifest:
        try:
            record: dict[str, Any] = json.loads(data)
            form = record.pop("format")
            if form == FORMAT:
                for role in ("inputs", "outputs"):
                    record[role] = tuple(map(_tensor, record[role]))
                record["sizes"] = _sizes(record["sizes"])
                for role in ("needs", "features"):
                    record[role] = tuple(record[role])
                return cls(**record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BundleError(
                f"{path} is no manifest of a model", why=str(error), fix="export the model again"
            ) from error
        raise BundleError(
            f"{path} has form {form!r}", why=f"this daceml reads form {FORMAT}", fix="export the model again"
        )


def _sizes(row: dict[str, Any]) -> SizeConditions:
    places, ranges = (
        {str(name): (pair[0], pair[1]) for name, pair in row[part].items()} for part in ("symbols", "ranges")
    )
    return SizeConditions(symbols=places, ranges=ranges, conditions=tuple(row["conditions"]))


def _tensor(row: dict[str, Any]) -> Tensor:
    return Tensor(name=row["name"], dtype=row["dtype"], code=row["code"], shape=tuple(row["shape"]))


def is_name(text: str) -> bool:
    """Whether functions of C can begin with it."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text) is not None


def file_sha256(path: Path) -> str:
    """In hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _changed(path: Path, expected: str, found: str) -> BundleError:
    return BundleError(
        f"{path} is not what was exported",
        why=f"its SHA-256 is {found[:16]}..., and should be {expected[:16]}...",
        fix="copy it again from where it was exported, or export the model again",
    )

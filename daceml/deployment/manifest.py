"""What lies in the folder of an exported model: its interface, what it needs, and a hash of every file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from daceml.deployment.interface import Tensor
from daceml.deployment.size_conditions import SizeConditions
from daceml.errors import BundleError
from daceml.plain_files import open_plain, read_plain

FORMAT = 3
FILE = "manifest.json"
_MOST_BYTES = 2**26


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
    def read(cls, folder: Path, *, sha256: str | None = None) -> ModelManifest:
        """Read it, and check it against its own hash; `check_files` checks the others.

        Args:
            sha256: of the manifest itself, where the caller knows it.
        Raises:
            BundleError: it is missing, is malformed or has another hash, or `sha256` is none.
        """
        path = folder / FILE
        if sha256 is not None and not _is_sha256(sha256):
            raise BundleError(
                f"sha256={sha256!r} is no SHA-256",
                why="it has 64 hexadecimal digits, and anything else would check nothing",
                fix="give what daceml export printed, or leave sha256 out",
            )
        try:
            data = read_plain(path, most_bytes=_MOST_BYTES)
        except OSError as error:
            raise BundleError(
                f"{folder} is no exported model",
                why=str(error),
                fix="give the folder that daceml export made",
            ) from error
        found = hashlib.sha256(data).hexdigest()
        if sha256 is not None and found != sha256.lower():
            raise _changed(path, sha256.lower(), found)
        return _parsed(data, path)

    def check_files(self, folder: Path) -> bytes:
        """Check all files against their hashes.

        Returns:
            the bytes of the library that had the right hash: what is opened by its path later may differ.
        Raises:
            BundleError: a file is missing or has another hash.
        """
        library = b""
        for name, expected in self.files.items():
            file = folder / name
            try:
                if name == f"lib{self.name}.so":
                    library = read_plain(file)
                    has = hashlib.sha256(library).hexdigest()
                else:
                    has = file_sha256(file)
            except OSError as error:
                raise BundleError(
                    f"{folder} has no file {name}", why=f"its manifest names it: {error}",
                    fix="export the model again",
                ) from error  # fmt: skip
            if has != expected:
                raise _changed(file, expected, has)
        return library


def _parsed(data: bytes, path: Path) -> ModelManifest:
    """What a manifest says, if it has the form of one.

    Raises:
        BundleError: it has not.
    """
    try:
        record: Any = json.loads(data)
        form = record.pop("format")
        if form == FORMAT:
            for role in ("inputs", "outputs"):
                record[role] = tuple(map(_tensor, record[role]))
            record["sizes"] = _sizes(record["sizes"])
            for role in ("needs", "features"):
                record[role] = tuple(record[role])
            manifest = ModelManifest(**record)
            _check_form(manifest)
            return manifest
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise BundleError(
            f"{path} is no manifest of a model",
            why=f"{type(error).__name__}: {error}",
            fix="export the model again",
        ) from error
    raise BundleError(
        f"{path} has form {form!r}", why=f"this daceml reads form {FORMAT}", fix="export the model again"
    )


def _check_form(manifest: ModelManifest) -> None:
    """Raises ValueError where a value is of another type, or nothing that `daceml.export` writes."""
    texts = [manifest.model, manifest.program, *manifest.needs, *manifest.features]
    texts += [*manifest.libraries.values(), *manifest.files.values(), *manifest.structures.values()]
    _require(all(_is(text, str) for text in texts), "a text is of another type")
    _require(_is(manifest.libtorch, bool), f"libtorch is {manifest.libtorch!r}")
    name = manifest.name
    _require(_is(name, str) and is_name(name), f"name is {name!r}, which functions of C cannot have")
    missing = {f"lib{name}.so", "weights.bin"} - set(manifest.files)
    _require(not missing, f"files have no hash of {', '.join(sorted(missing))}")
    for file, sha256 in manifest.files.items():
        plain = Path(file).name == file and file not in ("", ".", "..", FILE)
        _require(plain and _is_sha256(sha256), f"files have {file!r} with the hash {sha256!r}")
    for part, tensors in (("call", manifest.inputs), ("result", manifest.outputs)):
        _require(part in manifest.structures, f"structures have no {part}")
        for leaf in manifest.leaves[part]:
            number = type(leaf) is int and 0 <= leaf < len(tensors)
            constant = isinstance(leaf, dict) and list(leaf) == ["value"]
            _require(number or constant, f"leaves of the {part} have {leaf!r}")


def _sizes(row: dict[str, Any]) -> SizeConditions:
    places, ranges = (
        {str(name): (pair[0], pair[1]) for name, pair in row[part].items()} for part in ("symbols", "ranges")
    )
    return SizeConditions(symbols=places, ranges=ranges, conditions=tuple(map(str, row["conditions"])))


def _tensor(row: dict[str, Any]) -> Tensor:
    from daceml.runtime.torch_types import DTYPES

    tensor = Tensor(name=row["name"], dtype=row["dtype"], code=row["code"], shape=tuple(row["shape"]))
    _require(_is(tensor.name, str), f"a tensor is called {tensor.name!r}")
    _require(str(DTYPES[tensor.code]) == f"torch.{tensor.dtype}", f"{tensor.name} is {tensor.dtype!r}")
    known = all(isinstance(n, str) or (type(n) is int and n >= 0) for n in tensor.shape)
    _require(known, f"{tensor.name} has the shape {tensor.shape}")
    return tensor


def _is(value: object, kind: type) -> bool:
    """Whether a value out of a file has the type that is written for it."""
    return isinstance(value, kind)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _is_sha256(text: str) -> bool:
    return re.fullmatch(r"[0-9a-fA-F]{64}", text) is not None


def is_name(text: str) -> bool:
    """Whether functions of C can begin with it."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", text) is not None


def file_sha256(path: Path) -> str:
    """In hexadecimal digits."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _changed(path: Path, expected: str, found: str) -> BundleError:
    return BundleError(
        f"{path} is not what was exported",
        why=f"its SHA-256 is {found}, and should be {expected}",
        fix="copy it again from where it was exported, or export the model again",
    )

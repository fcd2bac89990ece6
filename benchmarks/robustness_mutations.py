"""Ways in which an ONNX file can be bad: bytes, fields, external data. All follows from a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import TensorProto

from benchmarks.byte_mutations import cut, drop_bytes, flipped, insert_bytes, twice
from benchmarks.robustness_fields import FIELDS, some_tensor
from benchmarks.robustness_models import MODELS, save


def make_file(seed: int, folder: Path) -> tuple[Path, str]:
    """Write the damaged model of a seed into an empty folder; returns its path and what was done."""
    rng = random.Random(seed)
    name = rng.choice(list(MODELS))
    model = MODELS[name]()
    path = save(model, folder)
    done: list[str] = []
    kinds = ["bytes"] * 2 + ["fields"] * 8 + (["files"] * 20 if name == "external" else [])
    kind = rng.choice(kinds)
    if kind == "fields":
        if rng.random() < 0.6:  # so that a change reaches the operators, instead of the declared shapes
            for value in model.graph.output:
                value.type.tensor_type.ClearField("shape")
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutation = rng.choice(FIELDS)
            done.append(mutation.__name__.strip("_"))
            try:
                mutation(model, rng)
            # what it would change is not there, or cannot be that
            except (IndexError, ValueError, TypeError, KeyError, onnx.defs.SchemaError):
                continue
        path.write_bytes(model.SerializeToString())
    elif kind == "bytes":
        change = rng.choice(BYTES)
        done.append(change.__name__.strip("_"))
        path.write_bytes(change(path.read_bytes(), rng))
    else:
        harm = rng.choice(FILES)
        done.append(harm.__name__.strip("_"))
        harm(model, folder, rng)
    return path, f"{name}: {', '.join(done)}"


# Bytes


def _flip(data: bytes, rng: random.Random) -> bytes:
    return flipped(data, rng, (1, 1, 2, 4, 16))


def _replace_byte(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        changed[rng.randrange(len(changed))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)


def _no_utf8(data: bytes, rng: random.Random) -> bytes:
    names = [
        word for word in (b"Relu", b"MatMul", b"Softmax", b"w1", b"scale", b"axes", b"local") if word in data
    ]
    word = rng.choice(names) if names else data[10:12]
    return data.replace(word, b"\xff\xfe" + word[2:])


BYTES = (cut, _flip, _replace_byte, insert_bytes, drop_bytes, twice, _no_utf8)


# External data


_ENTRIES = (
    "", "-1", "99999999999999999999", str(2**62), "0", "8", "1e3", "٣", "/etc/passwd", "../w.bin", ".",
    "w.bin", "more", "more/../../w.bin", "more/w2.bin", "w.bin\0", "..\\w.bin", "nowhere.bin",
)  # fmt: skip


def data_entries(model: onnx.ModelProto, folder: Path, rng: random.Random) -> None:
    tensor = some_tensor(model, rng)
    entry = rng.choice(list(tensor.external_data))
    entry.value = rng.choice(_ENTRIES)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def data_cut(model: onnx.ModelProto, folder: Path, rng: random.Random) -> None:
    file = folder / rng.choice(["w.bin", "more/w2.bin"])
    file.write_bytes(file.read_bytes()[: rng.choice([0, 1, 100, -1])])


def data_gone(model: onnx.ModelProto, folder: Path, rng: random.Random) -> None:
    (folder / rng.choice(["w.bin", "more/w2.bin"])).unlink()


def data_no_file(model: onnx.ModelProto, folder: Path, rng: random.Random) -> None:
    file = folder / rng.choice(["w.bin", "more/w2.bin"])
    file.unlink()
    if rng.random() < 0.5:
        file.mkdir()
    else:
        os.mkfifo(file)


def data_link(model: onnx.ModelProto, folder: Path, rng: random.Random) -> None:
    file = folder / rng.choice(["w.bin", "more/w2.bin"])
    file.unlink()
    file.symlink_to(rng.choice(["/etc/passwd", "/dev/zero", "/proc/self/mem", file.name, "model.onnx"]))


def data_and_raw(model: onnx.ModelProto, folder: Path, rng: random.Random) -> None:
    tensor = some_tensor(model, rng)
    if rng.random() < 0.5:
        tensor.raw_data = b"\0" * 16
    else:
        tensor.data_location = TensorProto.DEFAULT
    (folder / "model.onnx").write_bytes(model.SerializeToString())


FILES: tuple[Callable[[onnx.ModelProto, Path, random.Random], None], ...] = (
    data_entries, data_entries, data_entries, data_cut, data_gone, data_no_file, data_link, data_and_raw,
)  # fmt: skip

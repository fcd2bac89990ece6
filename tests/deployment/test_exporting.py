"""Exported models against PyTorch: loaded again, and from a C++ program in a process without Python."""

from __future__ import annotations

import copy
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from benchmarks.models import MODELS
from daceml.deployment.exporting import Exported
from daceml.deployment.manifest import ModelManifest
from daceml.errors import BundleError, CallError, DeploymentError
from tests.support.golden import golden, raises


class Several(nn.Module):
    """Inputs of several types, a scalar, a constant argument, results in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5)
        self.table.weight.requires_grad_(False)

    def forward(
        self, positions: torch.Tensor, mask: torch.Tensor, scale: torch.Tensor, power: int = 2
    ) -> Any:
        rows = self.table(positions).double() ** power
        kept = torch.where(mask.unsqueeze(-1), rows, 0.0)
        return {"kept": kept * scale, "count": mask.sum(), "all": (~mask, positions + 1)}


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) * 2


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Exported]:
    """A model, and what its copy was exported to before that lost its weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3), nn.Softmax(-1)).eval()
    copied, place = copy.deepcopy(model), tmp_path_factory.mktemp("made") / "s"
    made = daceml.export(copied, torch.randn(4, 6), to=place, name="scorer")
    for parameter in copied.parameters():
        nn.init.zeros_(parameter)
    return model, made


def _ran(made: Exported, inputs: Sequence[torch.Tensor], folder: Path) -> list[bytes]:
    """What the example program gives; it is compiled, and runs without any environment."""
    place, name = made.folder, made.manifest.name
    command = ["g++", "-std=c++17", "-O1", str(place / "example.cpp"), f"-L{place}", f"-l{name}"]
    command += [f"-Wl,-rpath,{place}", "-o", str(folder / "example")]
    if made.manifest.libtorch:
        libraries = Path(torch.__path__[0]) / "lib"
        command += [f"-L{libraries}", f"-Wl,--disable-new-dtags,-rpath,{libraries}", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True)
    given = [folder / f"in{i}.bin" for i in range(len(inputs))]
    for path, tensor in zip(given, inputs, strict=True):
        path.write_bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    results = [folder / f"out{i}.bin" for i in range(len(made.manifest.outputs))]
    words = [folder / "example", place / "weights.bin", *given, *results]
    subprocess.run([str(word) for word in words], check=True, env={})
    return [path.read_bytes() for path in results]


@pytest.mark.parametrize("libtorch", [False, True])
def test_a_c_program_runs_mbconv(libtorch: bool, tmp_path: Path):
    spec = MODELS["mbconv"]
    model, (x,) = spec.module(0).eval(), spec.example(0)
    x = x[:1]
    made = daceml.export(model, x, to=tmp_path / "mbconv", name="mbconv", libtorch=libtorch)
    (data,) = _ran(made, [x], tmp_path)
    with torch.no_grad():
        expected, exact = model(x), model.double()(x.double())
        again = daceml.load(made.folder, sha256=made.sha256)(x)
    for found in (torch.frombuffer(bytearray(data), dtype=torch.float32).view(expected.shape), again):
        limit = 4 * (expected - exact).norm() + 1e-6 * exact.norm()
        assert (found - exact).norm() < limit
    assert made.manifest.libtorch is libtorch
    assert any("torch" in library for library in made.manifest.needs) is libtorch
    assert not any("python" in library for library in made.manifest.needs)


def test_types_nesting_and_constants(tmp_path: Path):
    model = Several().eval()
    inputs = (
        torch.tensor([[0, 6, 3]]),
        torch.tensor([[True, False, True]]),
        torch.tensor(0.5, dtype=torch.float64),
    )
    made = daceml.export(model, *inputs, power=3, to=tmp_path / "several")
    loaded = daceml.load(made.folder)
    for flip in (False, True):
        call = (inputs[0], ~inputs[1] if flip else inputs[1], inputs[2])
        torch.testing.assert_close(loaded(*call, power=3), model(*call, power=3))
    with raises(CallError, "argument 3 is 2", "for 3"):
        loaded(*inputs, power=2)
    with raises(CallError, "Several"):
        loaded(*inputs)
    with raises(CallError, "positions", "torch.int32"):
        loaded(inputs[0].int(), *inputs[1:], power=3)
    results = _ran(made, inputs, tmp_path)
    expected = model(*inputs, power=3)
    assert (
        torch.frombuffer(bytearray(results[0]), dtype=torch.float64).tolist()
        == expected["kept"].view(-1).tolist()
    )
    assert int.from_bytes(results[1], "little") == 2


def test_strided_inputs_threads_and_gradients(scorer: tuple[nn.Module, Exported]):
    model, made = scorer
    loaded = daceml.load(made.folder)
    x = torch.randn(6, 4).t()
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model(x))
        several = [torch.randn(4, 6) for _ in range(8)]
        found: dict[int, torch.Tensor] = {}

        def run(number: int) -> None:
            for _ in range(50):
                found[number] = loaded(several[number])

        threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, x in enumerate(several):
            torch.testing.assert_close(found[number], model(x))
    with raises(CallError, "torch.no_grad()"):
        loaded(torch.randn(4, 6, requires_grad=True))
    with raises(CallError, "[5, 6]", "[4, 6]"):
        loaded(torch.randn(5, 6))


def test_weights_are_those_of_the_export(scorer: tuple[nn.Module, Exported]):
    model, made = scorer
    x = torch.randn(4, 6)
    with torch.no_grad():
        torch.testing.assert_close(daceml.load(made.folder)(x), model(x))


@pytest.mark.parametrize("name", ["libscorer.so", "weights.bin", "scorer.h", "example.cpp", "manifest.json"])
@pytest.mark.parametrize("change", ["a byte", "cut", "gone"])
def test_what_was_changed_is_refused(
    name: str, change: str, scorer: tuple[nn.Module, Exported], tmp_path: Path
):
    _, made = scorer
    place = tmp_path / "copy"
    place.mkdir()
    for file in made.folder.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    data = bytearray((place / name).read_bytes())
    if change == "a byte":
        data[len(data) // 2] ^= 1
    (place / name).write_bytes(data[: len(data) // 2] if change == "cut" else data)
    if change == "gone":
        (place / name).unlink()
    with pytest.raises(BundleError):
        daceml.load(place, sha256=made.sha256)


def test_the_library_knows_its_weights(scorer: tuple[nn.Module, Exported], tmp_path: Path):
    _, made = scorer
    weights = bytearray((made.folder / "weights.bin").read_bytes())
    weights[-70] ^= 1
    (tmp_path / "weights.bin").write_bytes(weights)
    (tmp_path / "main.cpp").write_text(
        '#include <cstdio>\n#include "scorer.h"\nint main(int, char** words) { char error[256];\n'
        "return scorer_load(words[1], error, sizeof error) ? 0 : (std::puts(error), 3); }\n"
    )
    place = made.folder
    command = ["g++", "main.cpp", f"-I{place}", f"-L{place}", "-lscorer", f"-Wl,-rpath,{place}", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    run = subprocess.run(["./main", "weights.bin"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (3, golden())
    assert "SHA-256" in run.stdout
    run = subprocess.run(["./main", "none"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (3, golden())
    assert "none" in run.stdout
    assert subprocess.run(["./main", str(place / "weights.bin")], cwd=tmp_path, check=False).returncode == 0


def test_other_versions_of_torch_are_refused(tmp_path: Path, scorer: tuple[nn.Module, Exported]):
    _, made = scorer
    manifest = made.manifest
    libraries = {**manifest.libraries, "torch": "1.0"}
    place = tmp_path / "other"
    place.mkdir()
    for file in made.folder.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    fields = {**vars(manifest), "libtorch": True, "libraries": libraries}
    ModelManifest(**fields).save(place)
    with raises(BundleError, "torch 1.0", torch.__version__, exact=False):
        daceml.load(place)


def _random() -> nn.Module:
    class Random(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x)

    return Random().eval()


def _counting() -> nn.Module:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1  # pyright: ignore
            return x * self.count

    return Counting().eval()


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (_random, "random"),
        (_counting, "count"),
        (lambda: nn.Dropout().train(), "training"),
        (lambda: 3, "int"),
    ],
)
def test_what_cannot_leave_is_refused(model: Callable[[], Any], named: str, tmp_path: Path):
    with raises(DeploymentError, named):
        daceml.export(model(), torch.randn(3), to=tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "1st", "a-b", "a b", "../x"])
def test_names_are_those_of_c(name: str, tmp_path: Path):
    with raises(DeploymentError, f"name={name!r}", "of C "):
        daceml.export(Scaled().eval(), torch.randn(3), to=tmp_path / "none", name=name)


def test_nothing_is_overwritten(tmp_path: Path):
    (tmp_path / "there").write_text("mine")
    for place in (tmp_path, tmp_path / "there"):
        with raises(DeploymentError, place):
            daceml.export(Scaled().eval(), torch.randn(3), to=place)
    assert (tmp_path / "there").read_text() == "mine"

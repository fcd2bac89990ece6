"""Tables of every command at 80 columns: names are shortened, and --wide shows them whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from daceml.operations.database.store import OpDatabase
from daceml.text_tables import WIDTH
from tests.support.command_line import told
from tests.support.recorded_calls import Recording
from tests.support.recorded_training import written
from tests.support.synthetic_operations import entry, products, seconds

LONG = "convolution_and_activation_of_the_first_branch"
MODEL = f"""
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.{LONG} = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())

    def forward(self, x):
        return self.{LONG}(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages_of_the_feature_extraction = nn.Sequential(Block(), Block())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.stages_of_the_feature_extraction(x).mean((2, 3))).softmax(-1)
"""
KERNEL = "void cutlass::Kernel<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_nn_align8>(Params)"
CALL = "net.py:Net -i 2,8,16,16"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything that the commands read; paths are relative, as nothing breaks them."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    run = Recording()
    for number in range(3):
        at = 1000.0 * number
        run.annotation(f"ProfilerStep#{number}", at, 950)
        run.operator("aten::mm", at + 5, 30)
        run.call("cudaLaunchKernel", at + 10, 5, (KERNEL, 7, at + 20, 800))
        run.call("cudaStreamSynchronize", at + 30, 795)
    device = {"id": 0, "name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 16 * 2**30}
    document = {"deviceProperties": [device], "traceEvents": run.events}
    Path("run.json").write_text(json.dumps(document))
    written(Path("ranks"))
    operations = products(60)
    with OpDatabase(Path("rows.db")) as rows:
        rows.add_all(
            entry(one, "Tesla T4", s) for one, s in zip(operations, seconds(operations), strict=True)
        )
    return tmp_path


Lines = Callable[..., list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    def printed(command: str) -> list[str]:
        code, out, err = told(capsys, *command.split())
        assert code == 0, err
        return out.splitlines()

    return printed


def too_long(lines: list[str]) -> list[str]:
    """Lines that the terminal would break; a word that is alone or longer, such as a path, stays whole."""
    broken = ((line, line.split()) for line in lines if len(line) > WIDTH)
    return [line for line, words in broken if len(words) > 1 and max(map(len, words)) < WIDTH - 10]


@pytest.mark.parametrize(
    "command",
    [
        f"compile {CALL}",
        f"explain {CALL}",
        f"explain {CALL} --all --train",
        f"verify {CALL} --train",
        f"whatif {CALL} --without fuse_subgraphs --to H100 --ranks 8",
        f"predict {CALL} --to H100,L4,A100 --price L4=0.7@2026-05-20 --devices 4 --kinds",
        "devices",
        "devices H100 L4",
        "trace replay run.json",
        "trace whatif run.json --amp --cuda-graphs --batch 2 --data-loader 4 --changes",
        "trace predict run.json --to H100,L4 --batch-recorded 32 --price L4=0.7@2026-05-20 --kinds",
        "trace optimize ranks --budget 1s",
        "cache ls",
        pytest.param("learn rows.db --budget 0s", marks=pytest.mark.slow),
        pytest.param(f"measure {CALL} --budget 5s", marks=pytest.mark.slow),
        pytest.param(f"whatif {CALL} --without fuse_subgraphs --measure", marks=pytest.mark.slow),
        pytest.param(f"explore {CALL} --budget 20s --measurements 1 --to H100", marks=pytest.mark.slow),
        pytest.param(f"explain {CALL} --search", marks=pytest.mark.slow),
    ],
)
def test_no_line_is_wider_than_a_terminal(command: str, lines: Lines, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_SEARCH_BUDGET_S", "5")
    printed = lines(command)
    assert len(printed) > 3
    assert too_long(printed) == []


def test_a_comparison_that_fails_fits(capsys: pytest.CaptureFixture[str], folder: Path):
    wrong = MODEL.replace(".softmax(-1)", ".softmax(-1) * (2.1 if torch.compiler.is_exporting() else 2.0)")
    (folder / "wrong.py").write_text(f"import torch\n{wrong}")
    code, out, _ = told(capsys, "verify", "wrong.py:Net", "-i", "2,8,16,16", "--intermediate")
    assert code == 1 and "FAIL" in out
    assert too_long(out.splitlines()) == []


def test_the_layout_does_not_depend_on_the_terminal(lines: Lines, monkeypatch: pytest.MonkeyPatch):
    expected = lines("devices")
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        assert lines("devices") == expected


def test_module_paths_are_shortened_in_the_middle_and_wide_shows_them(lines: Lines):
    path = f"stages_of_the_feature_extraction.0.{LONG}.0"
    narrow, wide = (
        "\n".join(lines(f"explain {CALL}{more}")).split("one at a time")[0] for more in ("", " --wide")
    )
    assert path in wide and "Mspecial" in wide
    assert path not in narrow and "Mspecial" not in narrow
    assert any(row.startswith("stages") and "…" in row and row.endswith("0") for row in narrow.split())


def test_figures_are_aligned_right(lines: Lines):
    head, _, *rows = lines("devices")
    end = head.index("bf16") + len("bf16")
    figures = {row[:end].split()[-1] for row in rows if row.startswith(("H100-SXM5", "L4 "))}
    assert figures == {"989", "121*"}

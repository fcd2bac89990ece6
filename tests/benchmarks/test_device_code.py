"""Device code through nvcc: what counts, and what a machine without nvcc or a disassembler is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.device_code import __main__ as device_code
from benchmarks.device_code import known_misses
from benchmarks.device_code.__main__ import main
from benchmarks.device_code.cases import Case, cases
from benchmarks.device_code.compiled import compiled
from benchmarks.device_code.device_bars import LAUNCHES, bars_of, launch_bars
from benchmarks.device_code.disassembler import Disassembler, find_disassembler
from benchmarks.device_code.generated import GeneratedKernel, Launches, generated
from benchmarks.device_code.known_misses import KNOWN, KnownMiss
from benchmarks.device_code.rows import row, rows_of
from benchmarks.device_code.rules import RULES, multiprocessors
from benchmarks.models import MODELS
from benchmarks.models.spec import ModelSpec
from daceml.codegen_cuda.kernel_unit import KernelLaunch, KernelUnit
from daceml.codegen_cuda.toolchain import CudaToolchain, find_nvcc
from tests.support.sampling import sampled

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no CUDA compiler on this machine")
PARTS = ("forward", "backward", "inference")
UNREAD = "there is no disassembler"


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3


def inputs(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None):
    return (torch.randn(5, 300, generator=generator).to(dtype),)


SPEC = ModelSpec(name="scaled", build=Scaled, inputs=inputs, depth=2, source=__name__)
CASE = Case(name="scaled", spec=SPEC, architectures=(80, 90), is_block=True)
ONE = Case(name="one", spec=SPEC, architectures=(90,))


def tools(architecture: int = 90) -> CudaToolchain:
    return CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=architecture)


def disassembler() -> Disassembler:
    found = find_disassembler()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def kernel_of(text: str, *, blocks: int = 512, threads: int = 256, bytes_moved: int = 0) -> GeneratedKernel:
    """A kernel `written(float* a00, float* a01)` by hand."""
    launched = KernelLaunch(function="written", grid=(blocks, 1, 1), block=(threads, 1, 1))
    headers = "".join(f"#include <daceml/{name}.h>\n" for name in ("device", "vectors"))
    body = f"__global__ void written(const float* __restrict__ a00, float* __restrict__ a01) {{ {text} }}"
    text = f"{headers}namespace daceml::kernel {{ {body} }}\n"
    unit = KernelUnit(text=text, launch="", parameters=("a00", "a01"), launched=launched)
    return GeneratedKernel(part="forward", unit=unit, bytes_moved=bytes_moved)


def rows_for(
    kernel: GeneratedKernel, folder: Path, reader: Disassembler | str = UNREAD
) -> list[dict[str, Any]]:
    return [row(ONE, one, 90) for one in compiled([kernel], tools(), folder, reader)]


def missed(rows: list[dict[str, Any]], case: Case = ONE) -> list[tuple[str, str]]:
    """Titles of bars that were measured and missed, and the notes that name kernels."""
    bars = [bar for bar in bars_of(case, rows) if bar.figure is not None and not bar.met]
    return [(bar.name.partition(": ")[2], bar.note) for bar in bars]


def good(**changed: object) -> dict[str, Any]:
    """A row that keeps every rule."""
    facts = {"registers": 8, "spill_bytes": 0, "stack_bytes": 0, "occupancy": 1.0, "blocks": 512}
    known = {"case": "one", "part": "forward", "architecture": 90, "kernel": "good", "seconds": 0.1}
    return {**known, **facts, "bytes_moved": 2**22, "broken_vectors": [], "sass": {}, **changed}


def test_all_passes_are_compiled_for_each_architecture():
    kernels, launches = generated(SPEC, architecture=90)
    one = Launches(kernels=1, contractions=0, others=0)
    assert launches == dict.fromkeys(PARTS, one)
    # float32 in vectors of 1,500: forward keeps the hyperbolic tangent, inference does not
    moved = {kernel.part: kernel.bytes_moved for kernel in kernels}
    assert moved == {"forward": 18000, "backward": 18000, "inference": 12000}
    assert {case.architectures for case in cases(quick=True)} == {(80, 90, 100)}
    full = {case.name: case for case in cases(quick=False)}
    assert all(full[name].architectures == (90,) for name in MODELS)
    assert full["block batch_norm"].train_mode and not full["block mish"].train_mode


@needs_nvcc
def test_a_row_has_what_the_assembler_says_and_what_the_machine_code_does():
    rows = rows_of(CASE, tools(), disassembler())
    assert [(row["part"], row["architecture"]) for row in rows] == [
        (part, architecture) for architecture in (80, 90) for part in PARTS
    ]
    # 1,500 elements, 4 to a thread
    assert {(*row["grid"], *row["block"]) for row in rows} == {("2", "1", "1", "256", "1", "1")}
    assert all(row["registers"] > 0 and row["spill_bytes"] == 0 and row["occupancy"] > 0.5 for row in rows)
    assert [row["vectors"] for row in rows[:3]] == [
        ["128-bit loads of a00", "128-bit stores to a01", "128-bit stores to a02"],
        ["128-bit loads of a00", "128-bit loads of a01", "128-bit stores to a02"],
        ["128-bit loads of a00", "128-bit stores to a01"],
    ]
    assert all(row["sass"]["global_stores_128"] >= 1 and row["sass"]["instructions"] > 32 for row in rows)
    assert all(bar.met for bar in bars_of(CASE, rows))


@pytest.mark.slow
@needs_nvcc
def test_of_several_kernels_the_one_that_is_refused_is_named(tmp_path: Path):
    faulty = kernel_of("undeclared();")
    seen = compiled([generated(SPEC, architecture=90)[0][0], faulty], tools(), tmp_path, UNREAD)
    assert [isinstance(one.facts, str) for one in seen] == [False, True]
    rows = [row(ONE, one, 90) for one in seen]
    ((title, note),) = missed(rows)
    assert title == "kernels that do not compile"
    assert note.startswith("written: ") and "undeclared" in note


@needs_nvcc
@pytest.mark.parametrize("extent", sampled([4, 3], 3))
def test_a_vector_that_is_never_loaded_is_a_miss(tmp_path: Path, extent: int):
    """The text calls for vectors of 4, of which there never are more than 3: all are loaded one by one."""
    text = f"""
        float v[4] = {{}};
        const float* _in = &a00[4 * threadIdx.x];
        float* _out = v;
        load_vector<4>(_in, _out, {extent});
        a01[threadIdx.x] = v[0] + v[1] + v[2] + v[3];
    """
    rows = rows_for(kernel_of(text), tmp_path, disassembler())
    note = "written: no 128-bit loads of a00"
    promise = ("kernels without vectors that their text promises", note)
    assert missed(rows) == ([] if extent == 4 else [promise])


LARGE = (784, "written: 3,136 bytes")


@needs_nvcc
@pytest.mark.parametrize(("elements", "note"), sampled([(16, None), LARGE], LARGE))
def test_a_large_array_of_a_thread_is_a_miss(tmp_path: Path, elements: int, note: str | None):
    """An array whose places are data is in memory, whatever the compiler does."""
    text = f"""
        float held[{elements}];
        for (int i = 0; i < {elements}; ++i) held[i] = a00[i * blockDim.x + threadIdx.x];
        for (int i = 0; i < {elements}; ++i) held[int(a00[i]) % {elements}] += 1;
        a01[threadIdx.x] = held[int(a00[threadIdx.x]) % {elements}];
    """
    rows = rows_for(kernel_of(text), tmp_path)
    assert missed(rows) == ([] if note is None else [("stack of a thread", note)])


def test_a_launch_with_few_blocks_for_much_is_a_miss():
    ((title, note),) = missed([good(kernel="few", blocks=16, bytes_moved=4_000_000)])
    assert "blocks" in title and "132" in title
    assert all(fact in note for fact in ("few", "16", "4.0 MB"))
    assert missed([good(blocks=16, bytes_moved=400_000), good(blocks=132, bytes_moved=4_000_000)]) == []
    assert [multiprocessors(one) for one in (80, 90, 100)] == [108, 132, 148]


def test_few_warps_are_a_miss_and_a_quarter_is_none():
    rows = [good(occupancy=0.25), good(kernel="wide", occupancy=0.125, registers=255)]
    ((title, note),) = missed(rows)
    assert "occupancy" in title and "25%" in title
    assert all(fact in note for fact in ("wide", "12%", "255")) and "good" not in note


def test_of_many_offenders_the_worst_are_named():
    rows = [good(kernel=f"k{n}", stack_bytes=1000 * n) for n in range(7)]
    ((title, note),) = missed(rows)
    assert "stack" in title
    assert note.index("k6") < note.index("6,000") < note.index("k5")
    assert "2 more" in note and "k2" not in note and "k0" not in note


def test_what_is_not_known_of_one_kernel_is_not_measured():
    unread = {
        key: value for key, value in good(unread=UNREAD).items() if key not in ("sass", "broken_vectors")
    }
    of_before = {key: value for key, value in good().items() if key not in ("blocks", "bytes_moved")}
    for rows, title, note in (
        ([good(), unread], "kernels without vectors that their text promises", UNREAD),
        ([good(), good(kernel="open", blocks=None)], "launches", "open: blocks not known"),
        ([of_before], "launches", "good: blocks and bytes_moved not known"),
    ):
        (bar,) = [bar for bar in bars_of(ONE, rows) if not bar.met]
        assert (bar.figure, bar.note) == (None, note) and bar.name.startswith(f"one, sm_90: {title}")


def test_without_a_compiler_every_bar_is_missed_and_only_check_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(device_code, "_tools", lambda: (None, "there is no CUDA compiler"))
    assert main(["--quick"]) == 0
    said = capsys.readouterr().out
    assert "there is no CUDA compiler" in said.splitlines()[0]
    assert "MISSED block mish, sm_90" in said
    assert not any(line.startswith("met") for line in said.splitlines())
    assert main(["--quick", "--check"]) == 1


def outcome_of(rows: list[dict[str, Any]]):
    return lambda case, *_: ([one | {"case": case.name} for one in rows], "")


def test_without_a_disassembler_that_is_said_and_only_check_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    unread = {
        key: value for key, value in good(unread=UNREAD).items() if key not in ("sass", "broken_vectors")
    }
    monkeypatch.setattr(device_code, "_tools", lambda: (tools(), ""))
    monkeypatch.setattr(device_code, "find_disassembler", lambda: UNREAD)
    monkeypatch.setattr(device_code, "_outcome", outcome_of([unread]))
    assert main(["--only", "mish"]) == 0
    said = capsys.readouterr().out
    assert UNREAD in said.splitlines()[0]
    assert any("MISSED mish, sm_90" in line and UNREAD in line for line in said.splitlines())
    assert main(["--only", "mish", "--check"]) == 1


def test_what_was_measured_and_is_wrong_fails_without_check(monkeypatch: pytest.MonkeyPatch):
    refused = {"architecture": 90, "kernel": "tanh", "failure": "no such function", "seconds": 0.1}
    monkeypatch.setattr(device_code, "_tools", lambda: (tools(), ""))
    for rows, code in (([refused], 1), ([good(stack_bytes=3136)], 1), ([good()], 0)):
        monkeypatch.setattr(device_code, "_outcome", outcome_of(rows))
        assert main(["--only", "mish"]) == code


def test_a_case_that_breaks_fails_without_check_and_one_that_is_not_begun_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def broken(*_: object):
        raise ValueError("a vector of unknown, whose size is not known")

    monkeypatch.setattr(device_code, "_tools", lambda: (tools(), ""))
    monkeypatch.setattr(device_code, "rows_of", broken)
    assert main(["--only", "mish"]) == 1
    assert "mish: not compiled: ValueError: a vector of unknown" in capsys.readouterr().out
    assert main(["--only", "mish", "--budget-s", "0"]) == 0


def test_a_known_miss_is_printed_and_fails_under_check_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    entry = KnownMiss(
        case="mish", rule="stack", kernels="deep_.*", architectures=(90,), reason="it is not tiled"
    )
    monkeypatch.setattr(known_misses, "KNOWN", (entry,))
    monkeypatch.setattr(device_code, "_tools", lambda: (tools(), ""))

    def run(*rows: dict[str, Any]) -> tuple[int, int, str]:
        monkeypatch.setattr(device_code, "_outcome", outcome_of(list(rows)))
        codes = main(["--only", "mish"]), main(["--only", "mish", "--check"])
        return *codes, capsys.readouterr().out

    deep = good(kernel="deep_1", stack_bytes=3136)
    *codes, said = run(deep)
    assert codes == [0, 1]
    assert "MISSED mish, sm_90" in said and "it is not tiled" in said
    # another kernel is not known, and hides behind none that is
    *codes, said = run(deep, good(kernel="new", stack_bytes=512))
    assert codes == [1, 1] and "it is not tiled" not in said
    # a miss that is gone leaves an entry that is wrong
    *codes, said = run(good(kernel="deep_1"))
    assert codes == [1, 1]
    assert any("MISSED mish" in line and "deep_.*" in line for line in said.splitlines())
    # without a measurement it is not known to be gone
    *codes, said = run(good(kernel="deep_1", stack_bytes=None))
    assert codes == [0, 1]
    assert any("deep_.*" in line and "not measured" in line for line in said.splitlines())


def test_known_misses_are_of_blocks_and_rules_that_there_are():
    blocks = {case.name: case for case in cases(quick=True)}
    rules = {rule.key for rule in RULES}
    for entry in KNOWN:
        assert entry.rule in rules and entry.reason
        assert set(entry.architectures) <= set(blocks[entry.case].architectures)


def test_a_run_goes_on_from_its_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    begun: list[str] = []

    def outcome(case: Case, *_: object):
        begun.append(case.name)
        launches = {"kernels": 7, "contractions": 8, "others": 3}
        rows = [good(architecture=one, launches=launches) for one in case.architectures]
        return rows, ""

    monkeypatch.setattr(device_code, "_tools", lambda: (tools(), ""))
    monkeypatch.setattr(device_code, "_outcome", outcome)
    journal = ["--journal", str(tmp_path / "rows.jsonl"), "--check"]
    assert main(["--only", "mish", *journal]) == 0
    assert main(["--only", "mish", "--only", "bert", "--budget-s", "0", *journal]) == 1
    assert main(["--only", "mish", "--only", "bert", *journal]) == 0
    assert begun == ["mish", "bert"]


def test_launches_besides_contractions_are_counted_beside_the_paper():
    rows = [
        {"part": part, "launches": launches}
        for part, launches in (
            ("forward", {"kernels": 1, "contractions": 0, "others": 0}),
            ("backward", {"kernels": 2, "contractions": 5, "others": 1}),
        )
    ]
    case = Case(name="block layer_norm", spec=SPEC, architectures=(90,), is_block=True)
    forward, backward = launch_bars(case, rows)
    assert (forward.figure, forward.met, backward.figure, backward.met) == (1, True, 3, False)
    assert forward.note == "and 0 contractions; no number in the paper's text"
    assert backward.note.startswith("and 5 contractions; ")
    counted_before = [{"part": "forward", "architecture": 90}]
    assert [bar.figure for bar in launch_bars(case, counted_before)] == [None, None]
    assert {name for name, _ in LAUNCHES} <= {case.name for case in cases(quick=False)}

"""Our own kernels as operations: by code and launch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from daceml.errors import EntryError
from daceml.operations.database.json_lines import export_json_lines, import_json_lines
from daceml.operations.database.kernels import KernelIdentity, kernel_operation
from daceml.operations.database.records import Operand
from daceml.operations.database.store import OpDatabase
from tests.operations.database.entries import entry
from tests.support.golden import raises

# as `manifest.json` of a program that was compiled for a device has it
STEP = {
    "kind": "kernel",
    "label": "ReluGrad",
    "kernel": "k_46e7d4e7376aed8f1fae",
    "launch": {
        "function": "ReluGrad_0_0_18_46e7d4e7376aed8f1fae",
        "grid": [12, 1, 1],
        "block": [96, 1, 1],
        "blocks": 12,
        "threads": 96,
        "shared_bytes": 128,
        "architecture": 90,
        "facts": None,
        "goes_round": False,
    },
}
READ = (Operand(shape=(32, 96), dtype="float32"),)


def test_a_step_of_a_compiled_program_is_an_operation():
    operation = kernel_operation(STEP, READ, direction="backward")
    assert operation.operator == "kernel"
    assert operation.kernel == (
        "ReluGrad_0_0_18_46e7d4e7376aed8f1fae source=46e7d4e7376aed8f1fae grid=12,1,1 block=96,1,1 shared=128"
    )
    assert KernelIdentity.of(operation.kernel) == KernelIdentity(
        function="ReluGrad_0_0_18_46e7d4e7376aed8f1fae",
        source="46e7d4e7376aed8f1fae",
        grid=(12, 1, 1),
        block=(96, 1, 1),
        shared_bytes=128,
    )
    assert (operation.operands, operation.direction) == (READ, "backward")


def test_the_record_is_that_of_the_runtime():
    manifest = pytest.importorskip("daceml.runtime.records.manifest")
    launch = manifest.LaunchRecord(function="f_ab12", grid=(3, 1, 1), block=(32, 1, 1), blocks=3, threads=32)
    step = manifest.StepRecord(kind="kernel", label="f", kernel="k_ab12", launch=launch)
    assert kernel_operation(asdict(step), READ).kernel == (
        "f_ab12 source=ab12 grid=3,1,1 block=32,1,1 shared=0"
    )


def test_entries_of_kernels_are_kept_exported_and_found_by_code_and_launch(tmp_path: Path):
    launches = [kernel_operation(STEP, READ, grid=(blocks, 1, 1)) for blocks in (1, 2, 4)]
    other = kernel_operation({**STEP, "kernel": "k_0123456789"}, READ, grid=(1, 1, 1))
    with OpDatabase(tmp_path / "a.db") as database, OpDatabase(tmp_path / "b.db") as copy:
        database.add_all([entry(one) for one in (*launches, other)])
        export_json_lines(database, tmp_path / "export")
        import_json_lines(copy, tmp_path / "export")
        for one in (*launches, other):
            assert [found.operation for found in copy.find(one)] == [one]
        near = {n.entry.operation.kernel for n in copy.nearest(launches[0])}
        assert near == {one.kernel for one in launches}, "other launches of the same code, no other code"
        assert len(list(copy.entries(operator="kernel"))) == 4


@pytest.mark.parametrize("grid", [["N/32", 1, 1], ["__import__('os')", 1, 1], [1, 1], [0, 1, 1], None])
def test_a_launch_that_depends_on_sizes_has_to_be_given(grid: list[object] | None):
    step = {**STEP, "launch": {**STEP["launch"], "grid": grid}}  # pyright: ignore[reportGeneralTypeIssues]
    with raises(EntryError, repr(grid), "grid=(X, Y, Z)"):
        kernel_operation(step, READ)
    assert "grid=7,1,1" in kernel_operation(step, READ, grid=(7, 1, 1)).kernel


@pytest.mark.parametrize("step", [{}, {**STEP, "kernel": ""}, {**STEP, "launch": None}])
def test_a_step_that_launches_nothing_is_refused(step: dict[str, object]):
    with raises(EntryError, "`kernel`", "`launch`"):
        kernel_operation(step, READ)


@pytest.mark.parametrize(
    "text",
    ["", "f", "f source=xy grid=1,1,1 block=1,1,1 shared=0", "f source=ab grid=1,1 block=1,1,1 shared=0"],
)
def test_what_is_no_kernel_of_ours_is_refused(text: str):
    with raises(EntryError, repr(text), "FUNCTION source=DIGEST grid=X,Y,Z block=X,Y,Z shared=BYTES"):
        KernelIdentity.of(text)

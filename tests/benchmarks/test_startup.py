"""The startup benchmark, told as stories by a start that never starts anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import startup, startup_process
from tests.support.golden import raises


def fake_start(how: str, model: str, cache: Path) -> dict[str, Any]:
    """Compiling costs 10 s and 0.1 s a layer, a warm start 1.5 s, export 1 s; a used cache is warm."""
    if how == "export":
        return {"seconds": 1.0}
    used = cache / how
    warm = used.exists()
    used.touch()
    layers = int(model.partition(":")[2] or 50)
    seconds = 1.5 if warm else 10 + 0.1 * layers
    return {
        "seconds": seconds,
        "compile_seconds": seconds,
        "stages_s": {"export": 1.0, "build": seconds - 1.0},
        "kernels": min(layers, 2) * 4,
    }


def test_each_encoder_starts_with_an_empty_cache():
    rows = startup.cold_encoders(fake_start, (1, 2, 24))
    assert [row["seconds"] for row in rows] == pytest.approx([10.1, 10.2, 12.4])


def test_a_deep_encoder_is_compared_with_one_layer_in_time_and_with_two_in_kernels():
    time_bar, kernel_bar = startup.encoder_bars(startup.cold_encoders(fake_start, (1, 2, 24)))
    assert time_bar.met
    assert time_bar.figure == pytest.approx(12.4 / 10.1)
    assert kernel_bar.met
    assert kernel_bar.figure == 0


def test_kernels_that_grow_with_the_depth_miss_their_bar():
    rows = [{"layers": n, "compile_seconds": 10.0 * n, "kernels": 4 * n} for n in (1, 2, 24)]
    assert [bar.met for bar in startup.encoder_bars(rows)] == [False, False]


def test_unknown_kernel_counts_are_not_measured():
    rows = [{"layers": n, "compile_seconds": 1.0} for n in (1, 2, 24)]
    assert startup.encoder_bars(rows)[1].figure is None


def test_a_warm_start_is_compared_with_export_in_the_same_run():
    row = startup.warm_start(fake_start, "resnet50", 3)
    assert (row["cold_s"], row["warm_s"], row["export_s"], row["over_export"]) == (15.0, 1.5, 1.0, 1.5)
    assert startup.warm_bar(row).met


def test_lowering_is_counted_for_each_operator():
    def start(how: str, model: str, cache: Path) -> dict[str, Any]:
        return {"seconds": 9.0, "stages_s": {"sdfg": 0.5, "lower": 1.5, "kernels": 6.0}, "operators": 100}

    row = startup.split_starts(start, ["resnet50"])[0]
    assert row["lowering_ms"] == pytest.approx(20.0)
    assert startup.lowering_bar(row).met
    assert not startup.lowering_bar({**row, "lowering_ms": 20.1}).met
    assert not startup.lowering_bar({**row, "lowering_ms": None}).met


def test_torch_compile_starts_cold_and_then_warm():
    row = startup.inductor_start(fake_start, "resnet50")
    assert (row["cold_s"], row["warm_s"]) == (15.0, 1.5)


def test_the_program_prints_stages_longest_first_and_writes_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "startup.json"
    assert startup.main(["--check", "--json", str(file)], start=fake_start) == 0
    said = capsys.readouterr().out
    assert said.index("build") < said.index("export")
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [row["case"] for row in rows] == [
        "cold encoder", "cold encoder", "cold encoder", "warm start", "torch.compile",
    ]  # fmt: skip
    assert (rows[2]["layers"], rows[2]["seconds"], rows[2]["kernels"]) == (24, pytest.approx(12.4), 8)
    assert (rows[-1]["cold_s"], rows[-1]["warm_s"]) == (15.0, 1.5)


@pytest.mark.slow
def test_a_process_that_fails_is_an_error_with_what_it_said(tmp_path: Path):
    with raises(RuntimeError, "no-such-model", exact=False):
        startup.start_in_process("export", "no-such-model", tmp_path)


def test_a_training_start_ends_with_the_first_step():
    spec = startup_process.spec_named("reduced:bert")
    seen = startup_process.STARTS["daceml_training"](spec.module(), spec.example())
    assert set(seen) == {"seconds", "compile_seconds"}


def test_a_network_with_nothing_to_train_has_no_training_start():
    spec = startup_process.spec_named("reduced:mish")
    with raises(ValueError, "Mish", "gradient"):
        startup_process.STARTS["daceml_training"](spec.module(), spec.example())

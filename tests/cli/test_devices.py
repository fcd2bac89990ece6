"""`daceml devices`: the table, one device, files of one's own, names that nobody knows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from daceml.devices.catalogue import catalogue
from daceml.devices.measured import CopyRate, MeasuredDevice
from daceml.text_tables import WIDTH
from tests.support.command_line import told
from tests.support.golden import golden


def test_the_table_has_a_line_a_device_that_fits_a_terminal(capsys: pytest.CaptureFixture[str]):
    code, out, err = told(capsys, "devices")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert max(map(len, lines)) <= WIDTH
    begun = [line.split("  ")[0] for line in lines]
    assert [name for name in begun if name in {d.name for d in catalogue()}] == [d.name for d in catalogue()]
    row = next(line for line in lines if line.startswith("V100-SXM2-16GB"))
    assert row.split() == ["V100-SXM2-16GB", "7.0", "80", "16", "900*", "15.7*", "125*"]
    assert "* unverified" in out


def test_one_device_has_every_figure_with_its_source(capsys: pytest.CaptureFixture[str]):
    code, out, _ = told(capsys, "devices", "v100")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "V100-SXM2-16GB (NVIDIA Volta, compute capability 7.0)"
    assert lines[2].endswith(": V100-PCIe-16GB, V100-PCIe-32GB, V100-SXM2-32GB")
    clock = lines.index(next(line for line in lines if "boost_clock_hz" in line))
    assert lines[clock].split()[1:] == ["1530", "MHz", "unverified"]
    assert lines[clock + 1] == "      NVIDIA V100 data sheet, from memory: not read again"
    reached = lines.index(next(line for line in lines if "achieved_bytes_per_s" in line))
    assert lines[reached].endswith("739 GB/s") and "geoffxy/habitat" in lines[reached + 1]


def test_several_devices_and_their_notes(capsys: pytest.CaptureFixture[str]):
    _, out, _ = told(capsys, "devices", "b200", "T4")
    assert out.startswith("B200-SXM-180GB (") and "\n\nT4 (NVIDIA Turing" in out
    assert "note: Sources disagree on the second-level cache" in out


def test_sources_of_all(capsys: pytest.CaptureFixture[str]):
    _, out, _ = told(capsys, "devices", "--sources")
    assert out.count("\n\n") == len(catalogue()) - 1
    lines = iter(out.splitlines())
    for device in catalogue():
        for label, figure in device.figures():
            line = next(line for line in lines if line.startswith(f"  {label} "))
            assert line.endswith("  unverified") is not figure.verified
            source = next(lines)
            while source.strip() != figure.source:
                source += f" {next(lines).strip()}"


def test_json(capsys: pytest.CaptureFixture[str]):
    _, out, _ = told(capsys, "devices", "h100", "--json")
    (device,) = json.loads(out)
    assert device["name"] == "H100-SXM5-80GB"
    assert device["peak_flops_per_s"]["bfloat16"]["value"] == 989e12
    assert device["l2_bytes"]["verified"] is False
    _, out, _ = told(capsys, "devices", "--json")
    assert [one["name"] for one in json.loads(out)] == [device.name for device in catalogue()]


def test_a_device_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "Mine"\nkind = "cpu"\nvendor = "Acme"\narchitecture = "One"\n'
        'memory_bytes = { value = 1073741824, source = "the box", verified = true }\n'
    )
    code, out, _ = told(capsys, "devices", file)
    assert code == 0
    assert out == "Mine (cpu, Acme One)\n  memory_bytes  1 GiB\n      the box\n"


def test_what_doctor_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    measured = MeasuredDevice(
        name="A processor", kind="cpu", threads=2, cache_bytes=1 << 20, call_us=0.5, versions={},
        date="2026-11-23", copies=(CopyRate(size_bytes=1 << 23, bytes_per_s=20e9, spread=0),),
    )  # fmt: skip
    file = tmp_path / "here.json"
    file.write_text(json.dumps({"findings": [], "devices": [measured.as_dict()]}))
    code, out, _ = told(capsys, "devices", file)
    assert code == 0
    lines = [line for line in out.splitlines() if not line.startswith("      ")]
    assert [line.split() for line in lines] == [
        ["A", "processor", "(cpu,", "2", "threads)"],
        ["multiprocessors", "2"],
        ["achieved_bytes_per_s", "20", "GB/s"],
        ["l2_bytes", "1", "MiB"],
        ["floor_us", "0.5", "us"],
    ]


def test_names_that_nobody_knows(capsys: pytest.CaptureFixture[str]):
    code, out, err = told(capsys, "devices", "H1000")
    assert (code, out) == (2, "")
    assert err == golden()
    assert all(fact in err for fact in ("[DML641] ", "'H1000'", "H100-", "docs/devices.md"))


def test_neither_torch_nor_dace_is_imported():
    code = (
        "import sys\nfrom daceml.devices import catalogue, from_measurement, roofline, wave_scaling\n"
        "from daceml.report import device_text\nfrom daceml.cli import devices\n"
        "devices.devices()\nprint(*sorted({'torch', 'dace', 'onnx'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "" and "V100-SXM2-16GB" in done.stdout

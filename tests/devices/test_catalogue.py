"""The catalogue: figures that have to agree with each other, and names."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from daceml.devices.catalogue import catalogue, find_device, find_devices, variants
from daceml.devices.occupancy import LIMITS
from daceml.devices.specification import Device, plain
from daceml.errors import DeviceError
from tests.support.golden import raises

NAMES = [device.name for device in catalogue()]
# float32 lanes of a multiprocessor or compute unit, by compute capability: NVIDIA's tuning guides, and its
# table of technical specifications; of CDNA 3 AMD's white paper, with 256 flops a clock
LANES = {60: 64, 61: 128, 70: 64, 75: 64, 80: 64, 86: 128, 89: 128, 90: 128, 100: 128, 120: 128, None: 128}
# whose peak of float32 belongs to another clock than the one listed, which its notes say
OTHER_CLOCK = {"H100-SXM5-80GB", "H200-SXM-141GB", "RTX PRO 6000"}


def test_the_catalogue_is_what_is_promised():
    promised = {
        "P4000", "P100-PCIe-16GB", "P4", "V100-PCIe-16GB", "V100-SXM2-16GB", "T4", "RTX 2070",
        "RTX 2080 Ti", "RTX 3090",
        "A10", "A100-PCIe-40GB", "A100-SXM4-80GB", "RTX 4090", "L4", "L40S", "H100-PCIe-80GB",
        "H100-SXM5-80GB",
        "H200-SXM-141GB", "B200-SXM-180GB", "RTX PRO 6000", "MI300X",
    }  # fmt: skip
    assert promised <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_every_file_is_a_device_of_its_name():
    files = {Path(str(one)).name for one in resources.files("daceml.devices.catalogue").iterdir()}
    files = {name for name in files if name.endswith(".toml")}
    assert {plain(name.removesuffix(".toml")) for name in files} == set(map(plain, NAMES))


def test_a_wheel_has_the_files():
    setup = Path(__file__).resolve().parents[2] / "setup.py"
    assert '"daceml.devices.catalogue": ["*.toml"],' in setup.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_peak_of_float32_is_lanes_times_clock(name: str):
    """A peak that counts a multiplication with its addition as one is half of it."""
    device = find_device(name)
    lanes = LANES[device.compute_capability]
    computed = 2 * lanes * device.need("multiprocessors", why="") * device.need("boost_clock_hz", why="")
    peak = device.peak_flops_per_s["float32"].value
    # rounded by the data sheets, or of a card whose clock is listed a little differently
    off = 0.10 if name in OTHER_CLOCK | {"B200-SXM-180GB"} else 0.04
    assert peak == pytest.approx(computed, rel=off)
    if name in OTHER_CLOCK:
        assert peak != pytest.approx(computed, rel=0.04) and "MHz" in " ".join(device.notes)


@pytest.mark.parametrize("name", NAMES)
def test_peaks_are_dense(name: str):
    """Each halving of the operands doubles the rate at most; a sparse figure would double it twice."""
    peak = {key: figure.value for key, figure in find_device(name).peak_flops_per_s.items()}
    if "float8" in peak:
        assert peak["float8"] == pytest.approx(2 * peak["float16"], rel=0.015)  # the L40S: 733, 362
    if "bfloat16" in peak:
        assert peak["bfloat16"] == peak["float16"]
        assert peak.get("tf32", peak["float16"] / 2) == pytest.approx(peak["float16"] / 2, rel=0.015)
    if "float16_accumulate_float16" in peak and "float16" in peak:
        assert peak["float16_accumulate_float16"] == pytest.approx(2 * peak["float16"], rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_reached_is_a_fair_share_of_the_peak(name: str):
    device = find_device(name)
    if device.achieved_bytes_per_s is not None:
        assert 0.65 < device.achieved_bytes_per_s.value / device.need("memory_bytes_per_s", why="") < 0.95
    for arithmetic, reached in device.achieved_gemm_flops_per_s.items():
        assert 0.5 < reached.value / device.peak_flops_per_s[arithmetic].value < 0.95


@pytest.mark.parametrize("name", NAMES)
def test_sources_are_whole_sentences_and_memory_is_unverified(name: str):
    for label, figure in find_device(name).figures():
        assert len(figure.source) > 12, (
            f"{label}: {figure.source} names a line of [sources] that is not there"
        )
        assert not ("from memory" in figure.source and figure.verified), label


@pytest.mark.parametrize("name", [name for name in NAMES if find_device(name).vendor == "NVIDIA"])
def test_occupancy_is_known_of_every_nvidia_device(name: str):
    assert find_device(name).compute_capability in LIMITS


def test_no_two_devices_share_a_name():
    names = Counter(plain(name) for device in catalogue() for name in {device.name, *device.aliases})
    shared = {name: count for name, count in names.items() if count > 1}
    # an alias may spell the device's own name differently
    for name in shared:
        assert len([device for device in catalogue() if device.is_called(name)]) == 1


@pytest.mark.parametrize("family", sorted({device.family for device in catalogue()}))
def test_a_family_is_a_name_for_its_usual_variant(family: str):
    assert find_device(family).family == family


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("V100", "V100-SXM2-16GB"), ("A100", "A100-SXM4-80GB"), ("H100", "H100-SXM5-80GB"),
        ("P100", "P100-PCIe-16GB"),
        ("h100 pcie", "H100-PCIe-80GB"), ("rtx-2080_TI", "RTX 2080 Ti"), ("2080ti", "RTX 2080 Ti"),
        # what drivers say, as traces and measurements have it
        ("Tesla V100-DGXS-32GB", "V100-SXM2-32GB"), ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("Tesla V100-PCIE-32GB", "V100-PCIe-32GB"), ("NVIDIA A100-PG509-200", "A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"), ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"), ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("AMD Instinct MI300X VF", "MI300X"), ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("Tesla T4", "T4"),
        ("Tesla P4", "P4"), ("Tesla P100-PCIE-16GB", "P100-PCIe-16GB"), ("NVIDIA L4", "L4"),
        ("NVIDIA_L4", "L4"),
        ("h100_sxm", "H100-SXM5-80GB"), ("a100_sxm", "A100-SXM4-80GB"), ("l40s", "L40S"),
        ("NVIDIA H200", "H200-SXM-141GB"),
    ],
)  # fmt: skip
def test_names(asked: str, name: str):
    assert find_device(asked).name == name


def test_a_name_that_is_nearly_right():
    with raises(DeviceError, "'H1000'") as caught:
        find_device("H1000")
    error = caught.value
    assert "H100-SXM5-80GB" in error.why and "T4" not in error.why
    assert "H100-" in error.fix and "docs/devices.md" in error.fix


@pytest.mark.parametrize("name", ["abacus", "Z9000", ""])
def test_a_name_that_is_nothing_near(name: str):
    with raises(DeviceError, repr(name), *NAMES) as caught:
        find_device(name)
    assert "docs/devices.md" in caught.value.fix and not any(known in caught.value.fix for known in NAMES)


def test_a_name_of_several_variants_names_them():
    with raises(DeviceError, "'A100 80'", "docs/devices.md") as caught:
        find_device("A100 80")
    assert caught.value.why == "A100-PCIe-80GB, A100-SXM4-80GB"


def test_variants():
    assert [one.name for one in variants(find_device("H100"))] == ["H100-PCIe-80GB"]
    assert variants(find_device("T4")) == ()


def test_a_path_is_a_device_of_ones_own(tmp_path: Path):
    file = tmp_path / "mine.TOML"
    file.write_text('name = "Mine"\nkind = "cpu"\nvendor = "Acme"\narchitecture = "One"\n')
    assert find_devices(str(file)) == (Device(name="Mine", kind="cpu", vendor="Acme", architecture="One"),)
    file.write_text("name")
    with raises(DeviceError, "Expected '='", exact=False) as caught:
        find_device(str(file))
    assert caught.value.where == str(file)

"""Device code of a kernel: what it is launched with, as numbers and over symbols."""

from __future__ import annotations

import re

import torch
from torch import nn

from daceml.codegen_cuda.kernel_unit import KernelUnit
from tests.codegen_cuda.kernel_units import Scores, unit_of


def launched_in(text: str) -> tuple[str, list[str]]:
    """Function and sizes, as the generated C++ has them; blocks are what there is at most."""
    (arguments,) = re.findall(r"DACEML_LAUNCH\((.*), stream", text)
    function, *sizes = arguments.split(", ")
    threads = dict(re.findall(r"constexpr int (\w+_threads) = (\d+)", text))
    ((cut, whole),) = re.findall(
        r"const std::int64_t blocks = (?:daceml::blocks_at_once\((.*), \w+\)|(.*));", text
    )
    assert sizes[0] == "blocks"
    sizes = [cut or whole, *sizes[1:]]
    for name, count in threads.items():
        sizes = [one.replace(name, count) for one in sizes]
    return function, sizes


def test_sizes_that_are_known_are_numbers():
    unit = unit_of(Scores(), torch.randn(5, 300))
    assert unit.launched.grid == (2, 1, 1) and unit.launched.block == (256, 1, 1)
    assert unit.launched.shared_bytes == 0
    function, sizes = launched_in(unit.text)
    assert function == unit.launched.function
    assert [eval(one.replace("/", "//")) for one in sizes] == [*unit.launched.grid, *unit.launched.block, 0]


def test_sizes_that_are_open_are_over_the_symbols_of_the_kernel():
    unit = unit_of(Scores(), torch.randn(5, 7), open_rows=True)
    x, y, z = unit.launched.grid
    assert (y, z) == (1, 1) and not isinstance(x, int)
    assert [str(symbol) for symbol in x.free_symbols] == ["s00"]
    _, sizes = launched_in(unit.text)
    for rows in (1, 36, 37, 1000):
        in_cpp = eval(sizes[0].replace("/", "//"), {"s00": rows})
        assert int(x.subs(dict.fromkeys(x.free_symbols, rows))) == in_cpp == -(-7 * rows // 256)


def test_a_row_in_a_block_has_a_thread_for_each_lane():
    unit = unit_of(nn.Softmax(-1), torch.randn(40, 70))
    assert unit.launched.grid == (10, 1, 1)
    assert launched_in(unit.text)[1][3:6] == [str(extent) for extent in unit.launched.block]


def rounds_of(unit: KernelUnit) -> list[str]:
    """Heads of the loops over points, or over blocks of rows, whose step is the grid's."""
    return re.findall(r"for \(([^{]*gridDim[^{]*)\)", unit.text)


def test_only_what_a_device_may_not_have_at_once_goes_round():
    """65,536 threads are always there: vectors of 4 points, warps for short rows."""
    small = [unit_of(Scores(), torch.randn(4, 65536)), unit_of(nn.Softmax(-1), torch.randn(2048, 70))]
    large = [unit_of(Scores(), torch.randn(4, 65537)), unit_of(nn.Softmax(-1), torch.randn(2049, 70))]
    large += [unit_of(nn.Softmax(-1), torch.randn(129, 3000))]
    assert [(unit.launched.goes_round, len(rounds_of(unit))) for unit in small] == [(False, 0)] * 2
    assert [(unit.launched.goes_round, len(rounds_of(unit))) for unit in large] == [(True, 1)] * 3
    assert "blocks_at_once" not in small[0].text
    assert "blocks_at_once" in large[0].text


def test_places_are_as_wide_as_the_sizes_and_a_step_behind_them_need():
    with torch.device("meta"):
        narrow, wide = torch.empty(2**31 - 2**22 - 4), torch.empty(2**31 - 2**22)
    assert rounds_of(unit_of(Scores(), narrow))[0].startswith("int p")
    assert rounds_of(unit_of(Scores(), wide))[0].startswith("int64_t p")

"""`daceml whatif` and `daceml trace whatif`, `daceml predict` and `daceml trace predict`."""

from __future__ import annotations

import pytest

from tests.support.command_line import told
from tests.support.golden import golden


@pytest.mark.parametrize(
    ("command", "own", "foreign"),
    [
        ("whatif", ["--without", "--input", "--measure"], ["--link", "--perfetto", "--gradients"]),
        ("trace whatif", ["--link", "--perfetto", "--gradients"], ["--without", "--input", "--measure"]),
        ("predict", ["--input", "--dim", "--optimizer"], ["--from", "--batch-recorded", "--host-factor"]),
        (
            "trace predict",
            ["--from", "--batch-recorded", "--host-factor"],
            ["--input", "--dim", "--optimizer"],
        ),
    ],
)
def test_help_lists_the_options_of_the_command_alone(
    command: str, own: list[str], foreign: list[str], capsys: pytest.CaptureFixture[str]
):
    code, out, _ = told(capsys, *command.split(), "--help")
    assert code == 0
    assert all(f"{option} " in out for option in own)
    assert not [option for option in foreign if f"{option} " in out]


@pytest.mark.parametrize(
    ("given", "owner"),
    [
        ("predict net.py:Net --from H100 --to L4", "daceml trace predict"),
        ("predict net.py:Net --host-factor=2 --to L4", "daceml trace predict"),
        ("trace predict run.json --devices 2 --to L4", "daceml predict"),
        ("predict run.json --input 8,32 --to L4 -q", "daceml predict"),
        ("whatif net.py:Net --amp", "daceml trace whatif"),
        ("whatif net.py:Net --link 100Gbps", "daceml trace whatif"),
        ("trace whatif run.json --without fuse_maps", "daceml whatif"),
    ],
)
def test_an_option_of_the_other_command_is_refused_with_its_name(
    given: str, owner: str, capsys: pytest.CaptureFixture[str]
):
    code, out, err = told(capsys, *given.split())
    assert (code, out, err) == (2, "", golden())
    assert err.startswith("[DML001] --") and f"`{owner}`" in err

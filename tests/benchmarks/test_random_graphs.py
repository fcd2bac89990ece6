"""The campaign of random graphs: what it draws, how it judges, and forty graphs of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks.random_graphs import images
from benchmarks.random_graphs.__main__ import QUICK, difference, observed
from benchmarks.random_graphs.graphs import ALONG, BINARY, UNARY, GraphModule, draw

X = torch.tensor([1.0, 1000.0], dtype=torch.float64)


def test_a_number_stands_for_one_graph():
    for number in (0, 7, 123):
        assert str(draw(number)) == str(draw(number))
        for one, two in zip(draw(number).inputs(), draw(number).inputs(), strict=True):
            assert torch.equal(one, two)


def test_every_function_is_drawn():
    drawn = {i.function for number in range(300) for i in draw(number).instructions}
    assert drawn == UNARY.keys() | BINARY.keys() | ALONG.keys()
    graphs = [draw(number) for number in range(100)]
    assert {graph.dtype for graph in graphs} == {torch.float32, torch.float64}
    assert any(graph.open_batch for graph in graphs)
    assert any(len(graph.results) > 1 for graph in graphs)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_eager_agrees_with_itself(number: int):
    graph = draw(number)
    once, twice = (observed(GraphModule(graph), graph, torch.float64) for _ in range(2))
    assert len(once) == len(graph.results) + len(graph.shapes)
    assert all(difference(a, b, b) is None for a, b in zip(once, twice, strict=True))


def test_what_is_wrong_is_told():
    assert difference(X, X, X) is None
    assert difference(X + 1e-9, X, X) is None
    assert difference(X * (1 + 1e-6), X, X) == "1.0e-06 from float64, eager 0.0e+00"
    assert difference(X / 0, X, X) == "values that are no numbers are in other places"
    assert difference(X.float(), X, X) == "torch.float32[2] instead of torch.float64[2]"


@pytest.mark.slow
def test_a_dozen_graphs(tmp_path: Path):
    """Compiled with gradients, in processes of their own."""
    assert verdicts(tmp_path, "--quick") == Counter(equal=QUICK)


@pytest.mark.slow
def test_graphs_whose_loops_are_kernels_of_a_device(tmp_path: Path):
    """In emulation; the first of them has a size that is an argument of its kernels."""
    assert draw(10).open_batch
    assert verdicts(tmp_path, "--recipe", "device", "--seed", "10", "--count", "5") == Counter(equal=5)


def test_every_kind_of_layer_is_drawn():
    networks = [images.draw(number) for number in range(200)]
    kinds = {layer.kind for network in networks for layer in network.layers}
    functions = images.ACTIVATIONS.keys() | images.MOVES.keys()
    assert kinds == functions | {"add", "mul", "cat", "gate", *images.CONVOLUTIONS}
    assert {network.mode for network in networks} == set(images.MODES)
    assert any(len(network.results) > 1 for network in networks)
    assert {network.channels_last for network in networks} == {True, False}
    assert str(images.draw(5)) == str(images.draw(5))


@pytest.mark.slow
def test_networks_over_images(tmp_path: Path):
    assert verdicts(tmp_path, "--family", "images", "--count", "9") == Counter(equal=9)


def verdicts(folder: Path, *options: str) -> Counter[str]:
    """What a campaign says of its graphs."""
    out = folder / "graphs.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.random_graphs", *options, "--check", "--json", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return Counter(row["verdict"] for row in json.loads(out.read_text())["rows"])

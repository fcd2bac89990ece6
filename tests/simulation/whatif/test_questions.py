from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.data_loader import DataLoaderWorkers
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.link import AnotherLink
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.questions import MAIN_FIELD, Network, optimization_of, words_of
from daceml.simulation.whatif.registry import OPTIMIZATIONS

NETWORK = Network(link="100Gbps", inside="NVLink3", gradients=Gradients.of("102MB"))


def asked(text: str, network: Network = NETWORK) -> list[Optimization]:
    return [optimization_of(words, network) for words in words_of(text.split())]


def test_a_question_may_come_alone():
    assert asked("--amp") == [AutomaticMixedPrecision()]


def test_a_figure_without_a_name_is_the_one_that_matters_most():
    assert asked("--amp 3:4:2") == [AutomaticMixedPrecision(compute_speedup=Estimate(3, fast=4, slow=2))]
    assert asked("--data-loader 2 fetch-us=100") == [
        DataLoaderWorkers(workers=2, fetch_us=Estimate.known(100.0))
    ]
    assert asked("--data-loader=2") == [DataLoaderWorkers(workers=2)]


def test_devices_and_what_joins_them():
    (question,) = asked("--ddp 4x8")
    assert isinstance(question, DataParallel)
    assert (question.topology.nodes, question.topology.devices) == (4, 32)
    assert question.samples == 32


def test_another_link():
    (question,) = asked("--faster-link recorded=NVLink2 wanted=100Gbps")
    assert isinstance(question, AnotherLink)
    assert question.wanted.bytes_per_s == 12.5e9


def test_every_main_field_exists():
    for option, field in MAIN_FIELD.items():
        assert field in OPTIMIZATIONS[option].__dataclass_fields__


@pytest.mark.parametrize(
    ("text", "network", "message"),
    [
        ("8 --amp", NETWORK, "'8' belongs to no question"),
        ("--amp 3 4", NETWORK, "--amp has its figure twice"),
        ("--apm", NETWORK, "there is no optimisation 'apm'"),
        ("--gist 3", NETWORK, "--gist takes no figure without a name"),
        ("--amp colour=3", NETWORK, "amp has no figure 'colour'"),
        ("--amp fast", NETWORK, "compute_speedup cannot be 'fast'"),
        ("--ddp", NETWORK, "--ddp does not say how many devices"),
        ("--ddp 8", Network(gradients=Gradients.of("1MB")), "nobody said what joins the devices"),
        ("--ddp 8", Network(link="100Gbps"), "nobody knows how large the gradients are"),
        ("--ddp 8", Network(link="fast", gradients=Gradients.of("1MB")), "fast"),
        ("--faster-link wanted=NVLink3", NETWORK, "faster-link needs recorded"),
    ],
)
def test_what_cannot_be_understood_is_said(text: str, network: Network, message: str):
    with pytest.raises(WhatIfError) as caught:
        asked(text, network)
    assert message in str(caught.value)
    assert caught.value.fix

from __future__ import annotations

import pytest

from daceml.errors import MissingFactError, WhatIfError
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.data_loader import DataLoaderWorkers
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.link import AnotherLink
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.questions import MAIN_FIELD, Network, answerable, optimization_of, words_of
from daceml.simulation.whatif.registry import OPTIMIZATIONS
from tests.support.golden import golden, raises

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
    ("text", "network", "facts"),
    [
        ("8 --amp", NETWORK, ("'8'",)),
        ("--amp 3 4", NETWORK, ("--amp",)),
        ("--apm", NETWORK, ("'apm'", "amp")),
        ("--gist 3", NETWORK, ("--gist", "'3'")),
        (
            "--amp colour=3",
            NETWORK,
            ("amp", "'colour'", "dtype, ", "LIKELY:BEST:WORST is possible for compute_speedup"),
        ),
        ("--amp fast", NETWORK, ("compute_speedup", "'fast'")),
        ("--ddp", NETWORK, ("--ddp 8", "--ddp 4x8")),
        ("--ddp 8", Network(gradients=Gradients.of("1MB")), ("--link 100Gbps", "--inside NVLink3")),
        ("--ddp 8", Network(link="100Gbps"), ("`gradients`",)),
        ("--ddp 8", Network(link="fast", gradients=Gradients.of("1MB")), ("'fast'",)),
        ("--faster-link wanted=NVLink3", NETWORK, ("faster-link", "recorded")),
    ],
)
def test_what_cannot_be_understood_is_said(text: str, network: Network, facts: tuple[str, ...]):
    with raises(WhatIfError, *facts) as caught:
        asked(text, network)
    assert caught.value.fix


def test_a_question_without_a_fact_is_refused_and_the_others_are_answered():
    words = words_of(["--ddp", "8", "--amp", "--checkpointing"])
    found, refused = answerable(words, Network())
    assert found == [AutomaticMixedPrecision()]
    assert [(one.title, one.code) for one in refused] == [("--ddp", "DML615"), ("--checkpointing", "DML615")]
    assert refused[0].reason == golden() and "--link" in refused[0].reason


def test_where_nothing_can_be_asked_the_first_lacking_fact_is_the_error():
    with raises(MissingFactError, "--link"):
        answerable(words_of(["--ddp", "8"]), Network())


def test_where_no_question_has_its_facts_the_error_names_what_each_lacks():
    with raises(MissingFactError, "none of the 2 questions") as caught:
        answerable(words_of(["--ddp", "8", "--checkpointing"]), Network())
    first, second = caught.value.why.splitlines()
    assert first.startswith("--ddp [DML615]") and "--link" in first
    assert second.startswith("--checkpointing [DML615]") and "layers" in second


def test_devices_of_one_node_are_joined_as_cards_of_the_recorded_kind_are():
    network = Network(card_link="450GB/s", gradients=Gradients.of("1MB"))
    (question,) = asked("--ddp 8", network)
    assert isinstance(question, DataParallel) and question.topology.inside.bytes_per_s == 450e9
    with raises(MissingFactError, "--link"):  # which says nothing of what joins nodes
        asked("--ddp 4x8", network)


@pytest.mark.parametrize(
    ("option", "fact"), [("bf16", "--low-precision bf16"), ("to", "daceml trace predict"), ("fp8", "fp8")]
)
def test_a_question_that_has_another_name_or_command_points_there(option: str, fact: str):
    with raises(WhatIfError, option, fact):
        asked(f"--{option}")

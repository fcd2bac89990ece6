"""The processor's name."""

from __future__ import annotations

from daceml.toolchain.processor import cpu_model


def test_the_processors_name_is_the_first_of_its_lines():
    assert cpu_model("processor : 0\nmodel name\t: Xeon @ 2 GHz\nmodel name : other\n") == "Xeon @ 2 GHz"


def test_a_processor_without_a_name_is_its_architecture():
    assert cpu_model("") != ""

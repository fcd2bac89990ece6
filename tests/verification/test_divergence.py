"""Which value diverges first, and how that reads."""

from __future__ import annotations

import json
import math

from daceml.text_tables import WIDTH
from daceml.verification.accuracy import TensorError
from daceml.verification.divergence import Diagnosis, Intermediate, Origin, conclusion, first_divergence
from tests.support.golden import golden


def value(name: str, *operands: str, error: float = 1e-8, reason: str = "") -> Intermediate:
    return Intermediate(
        origin=Origin(
            name=name, operator="Tanh", operands=operands, module_path="head.act", source="model.py:41"
        ),
        implementation="native:elementwise",
        error=TensorError(name=name, error=error, eager_error=1e-8, limit=1e-6, reason=reason),
    )


def test_it_is_the_earliest_whose_operands_are_all_right():
    values = [value("a"), value("b", "a", error=1e-3), value("c", "b", error=1e-2), value("d", "a", error=1)]
    first = first_divergence(values)
    assert first is not None and first.origin.name == "b"


def test_what_only_hands_a_fault_on_is_not_named():
    values = [value("a", error=1e-3), value("b", "a", error=1)]
    assert first_divergence(values) is values[0]
    assert first_divergence([value("a"), value("b", "a")]) is None


def test_the_conclusion_names_value_operator_place_and_implementation():
    values = [value("a"), value("b", "a", error=2.5e-3)]
    wrong = TensorError(name="b", error=2.5e-3, eager_error=2e-8, limit=1e-6)
    sentences = conclusion(values, wrong, outputs_fail=True)
    assert sentences == (golden(), golden(), golden(), golden(), golden())
    first, figures, operands, alone, compared = sentences
    assert all(fact in first for fact in ("b", "Tanh", "head.act", "model.py:41", "native:elementwise"))
    assert all(figure in figures for figure in ("2.50e-03", "1.00e-08", "1.00e-06"))
    assert "(a)" in operands and "2" in compared
    assert all(figure in alone for figure in ("2.50e-03", "2.00e-08", "1.00e-06"))


def test_an_operator_that_only_amplifies_is_told_apart():
    right = TensorError(name="b", error=0.0, eager_error=0.0, limit=1e-6)
    sentences = conclusion([value("a"), value("b", "a", error=1)], right, outputs_fail=False)
    assert sentences == (golden(), golden(), golden(), golden(), golden(), golden())
    assert "1.00e-06" not in sentences[3], "no figures of an operator that is right"


def test_a_fault_that_vanishes_is_said_so():
    (sentence, compared) = conclusion([value("a")], None, outputs_fail=True)
    assert (sentence, compared) == (golden(), golden())
    assert "1" in compared


def test_values_that_are_all_right_are_counted():
    (sentence,) = conclusion([value("a"), value("b", "a")], None, outputs_fail=False)
    assert sentence == golden() and "2" in sentence


def test_a_diagnosis_shows_failures_or_everything_and_fits_the_page():
    values = (value("a"), value("b", "a", error=math.inf, reason="shape (2,) instead of (3,)"))
    seen = Diagnosis(values=values, first=values[1], conclusion=conclusion(values, None, outputs_fail=True))
    assert not seen.passed
    assert "shape (2,) instead of (3,)" in seen.text(every_value=False)
    assert "pass" not in seen.text(every_value=False) and "pass" in seen.text(every_value=True)
    assert max(map(len, seen.text(every_value=True).splitlines())) <= WIDTH
    document = json.loads(json.dumps(seen.to_json(), allow_nan=False))
    assert document["first"]["name"] == "b"
    assert document["values"][1]["error"] is None


def test_a_look_that_failed_says_why():
    seen = Diagnosis(failure="RuntimeError: no")
    assert not seen.passed
    text = seen.text(every_value=True)
    assert text == golden() and "RuntimeError: no" in text

"""Predictions from kept profiles, without running anything: python -m benchmarks.explore.profiles FILE.

`python -m benchmarks.explore --steps steps.jsonl` keeps the costs and times of all steps that it measures.
This program predicts each variant from its own network's standard variant and from other networks: where a
constant of `daceml/tuning/step_times.py` or `daceml/tuning/step_features.py` changes, it says what
that is worth. With `--lower` variants are lowered again, and their costs are those of today's
`daceml/sdfg/costs.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.explore.cases import Case
from daceml.exploration.variant_timings import Programs
from daceml.tuning.machine_speeds import Machine
from daceml.tuning.model_call import Subject
from daceml.tuning.step_features import StepFacts
from daceml.tuning.step_times import StepTimes
from daceml.tuning.variant import Variant


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One variant that was measured.

    Attributes:
        case, network, variant: as rows of the benchmark name them.
        told: the variant, as `Variant.to_json` tells it.
        steps: their costs.
        steps_us: what they took.
        calls: that have as many samples as one of the standard variant.
        call_us: what so many calls took; around_us: what of one is in no step.
    """

    case: str
    network: str
    variant: str
    training: bool
    told: dict[str, Any]
    machine: Machine
    steps: tuple[StepFacts, ...]
    steps_us: tuple[float, ...]
    call_us: float
    around_us: float
    calls: float = 1.0

    @property
    def standard(self) -> bool:
        """Whether it is the variant that all others are told beside."""
        return self.variant == Variant().title


def save_profiles(path: Path, case: Case, programs: Programs) -> None:
    """Add what was measured of a case to a file."""
    with path.open("a", encoding="utf-8") as file:
        for variant, steps_us in programs.profiles.items():
            told = Profile(
                case=case.title, network=case.name, variant=variant.title, training=case.training,
                told=variant.to_json(), machine=programs.times.machine,
                steps=programs.lowered(variant).facts, steps_us=steps_us,
                calls=programs.lowered(variant).calls,
                call_us=programs.measure(variant).ms * 1e3, around_us=programs.around_us,
            )  # fmt: skip
            file.write(json.dumps(asdict(told)) + "\n")


def load_profiles(path: Path) -> list[Profile]:
    """What `save_profiles` wrote."""
    return [_profile(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _profile(told: dict[str, Any]) -> Profile:
    known = {field.name for field in fields(StepFacts)}
    steps = tuple(_facts({name: step[name] for name in step if name in known}) for step in told["steps"])
    machine: dict[str, Any] = dict(told["machine"])
    machine["levels"] = tuple((size, speed) for size, speed in machine.get("levels", ()))
    made: dict[str, Any] = {**told, "machine": Machine(**machine), "steps": steps}
    made["steps_us"] = tuple(told["steps_us"])
    return Profile(**made)


def _facts(told: dict[str, Any]) -> StepFacts:
    made: dict[str, Any] = dict(told)
    made["reach"], made["variety"] = tuple(told.get("reach", ())), tuple(told.get("variety", ()))
    return StepFacts(**made)


def lowered_again(profiles: Sequence[Profile]) -> Iterator[Profile]:
    """With the costs of today where the steps are still the same; others are left out."""
    subjects: dict[str, Subject] = {}
    for one in profiles:
        if one.case not in subjects:
            module, inputs = Case(name=one.network, training=one.training, variants=0).subject()
            subjects = {one.case: Subject(module, inputs, {}, training=one.training)}
        facts = subjects[one.case].lower(Variant.from_json(one.told)).facts
        if [_same(fact) for fact in facts] == [_same(step) for step in one.steps]:
            yield replace(one, steps=facts)


def _same(step: StepFacts) -> tuple[str, ...]:
    """Equal for steps that do the same: kernels are named by what they do, how calls are told may change."""
    function = step.function.removeprefix("packed_") if step.kind == "aten" else ""
    return step.kind, function, step.key if step.kind == "kernel" else ""


def predicted(profiles: Sequence[Profile], case: str, *, others: bool) -> list[tuple[Profile, float, bool]]:
    """Each variant of a case, its time as predicted over that as measured, and whether the interval holds it.

    Args:
        others: whether steps of all other networks are known.
    """
    own = [one for one in profiles if one.case == case]
    standard = next(one for one in own if one.standard)
    times = StepTimes(standard.machine)
    if others:
        for one in profiles:
            if one.network != standard.network:
                times.learn(one.steps, one.steps_us, own=False)
    times.learn(standard.steps, standard.steps_us)
    known = times.program(standard.steps, standard.around_us)
    found: list[tuple[Profile, float, bool]] = []
    for one in own:
        if not one.standard:
            seen = times.program(one.steps, one.around_us)
            scale = standard.call_us / known.us * one.calls
            holds = seen.low_us * scale <= one.call_us <= seen.high_us * scale
            found.append((one, seen.us * scale / one.call_us, holds))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("steps", type=Path)
    parser.add_argument("--lower", action="store_true", help="take the costs of today")
    options = parser.parse_args(arguments)
    profiles = load_profiles(options.steps)
    if options.lower:
        profiles = list(lowered_again(profiles))
    cases = list(dict.fromkeys(one.case for one in profiles if one.standard))
    for others in (False, True):
        print("others' steps known" if others else "from the standard variant alone")
        errors: list[float] = []
        held: list[bool] = []
        for case in cases:
            found = predicted(profiles, case, others=others)
            off = [abs(ratio - 1) for _, ratio, _ in found]
            errors, held = errors + off, held + [holds for _, _, holds in found]
            if found:
                worst = max(found, key=lambda one: abs(one[1] - 1))
                print(
                    f"  {case:<28} {mean(off):6.1%}  {mean(h for _, _, h in found):4.0%} hold"
                    f"   worst {worst[1]:.2f}: {worst[0].variant}"
                )
        if errors:
            print(f"  mean {mean(errors):.1%}, median {median(errors):.1%}, {mean(held):.0%} hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())

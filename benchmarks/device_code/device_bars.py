"""Bars of a case: each rule for each architecture, and how often a pass launches something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.bars import Bar
from benchmarks.device_code.cases import Case
from benchmarks.device_code.generated import Launches
from benchmarks.device_code.known_misses import known_reason, stale_bars
from benchmarks.device_code.rules import RULES, Row, Rule

# (case, pass) -> how often it may launch something besides contractions.
LAUNCHES = {
    ("block mish", "forward"): 1,
    ("block mish", "backward"): 1,
    ("block layer_norm", "forward"): 1,
    ("block layer_norm", "backward"): 2,
    ("block softmax", "forward"): 1,
    ("block softmax", "backward"): 1,
    ("bert", "forward"): 10,
}
# What the paper of DaCeML says in words; its figures have further numbers in brackets.
_IN_THE_PAPER = {("block mish", "forward"): "in the paper, 6.1: 1, and 3 of PyTorch"}
_NAMED = 4  # kernels, in the note of a bar; rows have all of them


def bars_of(case: Case, rows: Sequence[Row], failure: str = "") -> list[Bar]:
    """Every rule for every architecture, and known misses that are gone. Without rows, `failure` says why."""
    bars: list[Bar] = []
    measured: set[tuple[str, int]] = set()
    missed: list[tuple[str, int, str]] = []
    for architecture in case.architectures:
        of_it = [one for one in rows if one["architecture"] == architecture]
        for rule in RULES:
            if rule.blocks_only and not case.is_block:
                continue
            bar = _bar(case, rule, architecture, of_it, failure)
            bars.append(bar)
            if bar.figure is not None:
                measured.add((rule.key, architecture))
            missed += [(rule.key, architecture, one["kernel"]) for one in _offenders(rule, of_it)]
    return bars + stale_bars(case.name, measured, missed)


def _bar(case: Case, rule: Rule, architecture: int, rows: Sequence[Row], failure: str) -> Bar:
    name = f"{case.name}, sm_{architecture}: {rule.title(architecture)}"
    judged = [one for one in rows if "failure" not in one or rule.key == "compiles"]
    lacking = [one for one in judged if any(one.get(key) is None for key in rule.needs)]
    if not judged or lacking:
        why = failure or (_why_not(lacking[0], rule) if lacking else "no kernel was compiled")
        return Bar(name=name, figure=None, limit=rule.limit, unit=rule.unit, note=why)
    offenders = _offenders(rule, judged)
    return Bar(
        name=name,
        figure=max(map(rule.figure, judged)) if rule.largest else len(offenders),
        limit=rule.limit,
        unit=rule.unit,
        note="; ".join(_named(rule, offenders)) or f"of {len(judged)}",
        known=known_reason(case.name, rule.key, architecture, [one["kernel"] for one in offenders]),
    )


def _offenders(rule: Rule, rows: Sequence[Row]) -> list[Row]:
    """Kernels above the limit, the worst first."""
    measured = [one for one in rows if all(one.get(key) is not None for key in rule.needs)]
    above = [one for one in measured if rule.figure(one) > rule.limit]
    return sorted(above, key=rule.figure, reverse=True)


def _named(rule: Rule, offenders: Sequence[Row]) -> Iterator[str]:
    for one in offenders[:_NAMED]:
        yield f"{one['kernel']}: {rule.say(one)}"
    if len(offenders) > _NAMED:
        yield f"{len(offenders) - _NAMED} more"


def _why_not(row: Row, rule: Rule) -> str:
    if "unread" in row:
        return row["unread"]
    absent = " and ".join(key for key in rule.needs if row.get(key) is None)
    return f"{row['kernel']}: {absent} not known"


def launch_bars(case: Case, rows: Sequence[Row], failure: str = "") -> list[Bar]:
    """How often passes launch something, where that is limited."""
    return [_launch_bar(case.name, part, rows, failure) for name, part in LAUNCHES if name == case.name]


def _launch_bar(case: str, part: str, rows: Sequence[Row], failure: str) -> Bar:
    paper = _IN_THE_PAPER.get((case, part), "no number in the paper's text")
    found = (one["launches"] for one in rows if one.get("part") == part and "launches" in one)
    seen = next((Launches(**launches) for launches in found), None)
    return Bar(
        name=f"{case}, {part}: launches besides contractions",
        figure=None if seen is None else seen.kernels + seen.others,
        limit=LAUNCHES[case, part],
        note=failure if seen is None else f"and {seen.contractions} contractions; {paper}",
    )

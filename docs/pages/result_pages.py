"""Pages of the result files in benchmarks/results: every bar, what was seen, and on which machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """What one result file says of itself.

    Attributes:
        name: path from benchmarks/results, without `.json`.
        gpu: the device that it was measured on; empty for a processor.
        emulated: kernels of a device that ran on the processor.
    """

    name: str
    benchmark: str
    gpu: str
    emulated: bool
    machine: Mapping[str, Any]
    bars: tuple[Mapping[str, Any], ...]

    @property
    def met(self) -> int:
        return sum(bool(bar["met"]) for bar in self.bars)

    @property
    def page(self) -> str:
        return f"results/{'gpu-' + _word(self.gpu) if self.gpu else self.benchmark}.md"

    @property
    def place(self) -> str:
        """Where it was measured, in words."""
        processor = f"{self.machine.get('cpu', 'unknown processor')}, {self.machine.get('cores', '?')} cores"
        if self.gpu:
            return f"{self.gpu} ({processor})"
        return f"{processor}, devices emulated" if self.emulated else processor


def result_file(name: str, document: Mapping[str, Any]) -> ResultFile:
    """The record of a parsed result file; what a file lacks is empty."""
    machine = document.get("machine") or {}
    gpu = (document.get("device") or {}).get("gpu") or machine.get("gpu") or ""
    return ResultFile(
        name=name,
        benchmark=document.get("benchmark") or _word(name.rsplit("/", 1)[-1].split("-")[0]),
        gpu=gpu if isinstance(gpu, str) else str(gpu.get("name", gpu)),
        emulated=bool((document.get("arguments") or {}).get("emulated")),
        machine=machine,
        bars=tuple(document.get("bars") or ()),
    )


def read_results(folder: Path) -> list[ResultFile]:
    """All result files of a folder and those below it, by name."""
    paths = sorted(folder.rglob("*.json"))
    return [
        result_file(str(path.relative_to(folder).with_suffix("")), json.loads(path.read_text("utf-8")))
        for path in paths
    ]


def result_pages(results: Iterable[ResultFile]) -> dict[str, tuple[str, str]]:
    """Page -> its title and text: one for each program, and one for each GPU."""
    pages: dict[str, list[ResultFile]] = {}
    for result in results:
        pages.setdefault(result.page, []).append(result)
    return {page: (_title(members[0]), _page(members)) for page, members in sorted(pages.items())}


def results_index(results: Sequence[ResultFile]) -> str:
    """All files with the machine, the day and the commit, those of GPUs apart."""
    on_gpu = [result for result in results if result.gpu]
    lines = ["# Results", "", *INTRODUCTION.strip().splitlines(), "", "## On GPUs", ""]
    lines += _overview(on_gpu) or ["No result file here was measured on a GPU.", ""]
    lines += ["## On processors", "", *_overview([result for result in results if not result.gpu])]
    return "\n".join(lines)


INTRODUCTION = """
Figures that were measured, beside the bars that they have to keep. Each file in `benchmarks/results` was
written by a program of `benchmarks/`, on one machine, at one commit; [the format](format.md) says what its
rows hold. A bar that is missed is shown as missed, and one that was not measured is not met. Times of two
files are not compared with each other: machines differ, and so do the hours of one machine. Emulated means
that kernels of a device ran on the processor: values count there, times mean nothing. `-dirty` behind a
commit means that the tree had changes beyond it.
"""


def _page(members: Sequence[ResultFile]) -> str:
    lines = [f"# {_title(members[0])}", ""]
    for member in members:
        machine = member.machine
        lines += [f"## {member.name}", "", f"- machine: {member.place}; {machine.get('system', '')}"]
        lines += [f"- measured: {_day(machine)}, at commit `{machine.get('commit', 'unknown')}`"]
        lines += [f"- versions: {_versions(machine)}", f"- bars: {_score(member)}", ""]
        if member.bars:
            lines += ["| bar | seen | at most | | note |", "|---|--:|--:|---|---|"]
            lines += [_row(bar) for bar in member.bars] + [""]
    return "\n".join(lines)


def _overview(results: Sequence[ResultFile]) -> list[str]:
    if not results:
        return []
    rows = [
        f"| [{one.name}]({one.page.removeprefix('results/')}#{_word(one.name)}) | {_score(one)} "
        f"| {one.place} | {_day(one.machine)} | `{one.machine.get('commit', '')}` |"
        for one in results
    ]
    return ["| file | bars | machine | day | commit |", "|---|---|---|---|---|", *rows, ""]


def _row(bar: Mapping[str, Any]) -> str:
    unit = bar.get("unit", "")
    seen = "not measured" if bar["figure"] is None else _figure(bar["figure"], unit)
    verdict = "met" if bar["met"] else "**missed**"
    cells = (_cell(bar["name"]), seen, _figure(bar["limit"], unit), verdict, _cell(bar.get("note", "")))
    return "| " + " | ".join(cells) + " |"


def _figure(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".rstrip()


def _cell(text: str) -> str:
    """Text that ends no cell and begins no markup."""
    for sign in "\\`*_{}[]<>|":
        text = text.replace(sign, {"<": "&lt;", ">": "&gt;"}.get(sign, "\\" + sign))
    return " ".join(text.split())


def _score(result: ResultFile) -> str:
    return f"{result.met} of {len(result.bars)} met" if result.bars else "none: rows only"


def _day(machine: Mapping[str, Any]) -> str:
    return str(machine.get("date", "unknown"))[:10]


def _versions(machine: Mapping[str, Any]) -> str:
    packages = machine.get("packages") or {}
    told = [f"{name} {packages[name]}" for name in ("torch", "dace", "onnxruntime") if name in packages]
    return ", ".join([f"Python {machine.get('python', '?')}", *told])


def _title(result: ResultFile) -> str:
    if result.benchmark == "gpu" and not result.gpu:
        return "GPU suite, emulated"
    return result.gpu or result.benchmark.replace("_", " ").capitalize()


def _word(text: str) -> str:
    """As the anchors of headings are made: small letters, digits, `_` and `-`."""
    kept = "".join(sign for sign in text.lower() if sign.isalnum() or sign in "-_ ")
    return "-".join(kept.split())

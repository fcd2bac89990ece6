"""The README's figure, from committed results: python -m benchmarks.figures, or make figures.

It shows how many times as fast as eager PyTorch each peer runs networks that a reader knows. There are two
SVG files, for light and for dark pages.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_ROOT = Path(__file__).resolve().parent.parent
_RESULTS = _ROOT / "benchmarks" / "results" / "networks-xeon-2cores-2026-11-22.json"
_FOLDER = _ROOT / "docs" / "figures"
_QUIET = 0.5  # of a core, that other processes may use in a round that counts

_NETWORKS = {
    "resnet50": "ResNet-50",
    "mobilenetv2": "MobileNetV2",
    "efficientnet_b0": "EfficientNet-B0",
    "yolov4": "YOLOv4",
    "bert": "BERT layer",
    "mlp_mixer": "MLP-Mixer",
    "wavenet": "WaveNet",
}
_PEERS = {
    "eager": "PyTorch eager",
    "inductor": "Inductor",
    "onnxruntime": "ONNX Runtime",
    "daceml": "daceml",
}
_PANELS = {"inference": "Inference", "training": "Training step"}


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colors of one figure."""

    text: str
    faint: str
    bars: Mapping[str, str]


THEMES = {
    "light": Theme(
        text="#1f2328",
        faint="#d0d7de",
        bars={"eager": "#afb8c1", "inductor": "#b08d57", "onnxruntime": "#8c6bb1", "daceml": "#1a6fb5"},
    ),
    "dark": Theme(
        text="#e6edf3",
        faint="#30363d",
        bars={"eager": "#6e7681", "inductor": "#c9a66b", "onnxruntime": "#a98fd0", "daceml": "#58a6ff"},
    ),
}

_WIDTH, _LABEL, _GAP, _BAR, _GROUP = 860, 120, 30, 7, 8
_TOP = 64


def speedups(rows: Sequence[Mapping[str, Any]], mode: str) -> dict[str, dict[str, float]]:
    """Network -> peer -> how many times as fast as eager, the median of quiet rounds."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["mode"] != mode or row["model"] not in _NETWORKS:
            continue
        times = {peer: _median_us(row["times"]["rounds"], peer) for peer in _PEERS}
        eager = times["eager"]
        if eager is not None:
            found[row["model"]] = {peer: eager / us for peer, us in times.items() if us is not None}
    return found


def _median_us(rounds: Sequence[Mapping[str, Any]], peer: str) -> float | None:
    seen = [r[peer]["duration_us"] for r in rounds if peer in r and r[peer]["foreign"] < _QUIET]
    return statistics.median(seen) if seen else None


def figure(panels: Mapping[str, Mapping[str, Mapping[str, float]]], machine: str, theme: Theme) -> str:
    """An SVG document: one panel for each mode, networks below each other, a bar for each peer."""
    peers = {
        mode: [p for p in _PEERS if any(p in row for row in rows.values())] for mode, rows in panels.items()
    }
    most = max(len(found) for found in peers.values())
    group = most * _BAR + _GROUP
    height = _TOP + group * len(_NETWORKS) + 46
    room = (_WIDTH - _LABEL - _GAP * len(panels)) / len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12" '
        f'fill="{theme.text}">'
    ]
    x = 0.0
    for peer, name in _PEERS.items():
        parts.append(f'<rect x="{x}" y="6" width="12" height="12" fill="{theme.bars[peer]}"/>')
        parts.append(f'<text x="{x + 17}" y="16">{escape(name)}</text>')
        x += 36 + 7.2 * len(name)
    for n, network in enumerate(_NETWORKS.values()):
        y = _TOP + n * group + most * _BAR / 2 + 4
        parts.append(f'<text x="{_LABEL - 10}" y="{y}" text-anchor="end">{escape(network)}</text>')
    for k, (mode, rows) in enumerate(panels.items()):
        left = _LABEL + k * (room + _GAP)
        longest = max(value for row in rows.values() for value in row.values())
        scale = (room - 34) / longest
        parts.append(f'<text x="{left}" y="{_TOP - 18}" font-weight="600">{_PANELS[mode]}</text>')
        bottom = _TOP + group * len(_NETWORKS)
        for tick in range(1, int(longest) + 1):
            at = left + tick * scale
            parts.append(
                f'<line x1="{at:.1f}" y1="{_TOP - 8}" x2="{at:.1f}" y2="{bottom}" stroke="{theme.faint}"/>'
                f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle" font-size="10">{tick}x</text>'
            )
        for n, network in enumerate(_NETWORKS):
            for i, peer in enumerate(p for p in peers[mode] if p in rows.get(network, {})):
                value, y = rows[network][peer], _TOP + n * group + i * _BAR
                parts.append(
                    f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="{_BAR - 1}" '
                    f'fill="{theme.bars[peer]}"/>'
                )
                if peer == "daceml":
                    parts.append(
                        f'<text x="{left + value * scale + 4:.1f}" y="{y + 6}" font-size="10">'
                        f"{value:.2f}x</text>"
                    )
    parts.append(
        f'<text x="0" y="{height - 6}" font-size="10">'
        f"times as fast as eager PyTorch; {escape(machine)}</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the README's figure from committed results.")
    parser.add_argument(
        "--results", type=Path, default=_RESULTS, metavar="FILE", help="of benchmarks.networks"
    )
    parser.add_argument("--folder", type=Path, default=_FOLDER, metavar="FOLDER", help="where the figures go")
    options = parser.parse_args(arguments)
    document = json.loads(options.results.read_text(encoding="utf-8"))
    about = document["machine"]
    machine = (
        f"{about['cpu']}, {about['cores']} cores, torch {about['packages']['torch']}, {about['date'][:10]}"
    )
    panels = {mode: speedups(document["rows"], mode) for mode in _PANELS}
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, theme in THEMES.items():
        path = options.folder / f"speed-{name}.svg"
        path.write_text(figure(panels, machine, theme), encoding="utf-8")
        print(path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the program of every step is told."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path


def parse(arguments: Sequence[str] | None, description: str) -> argparse.Namespace:
    """The command line of a step's program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--step", required=True, help="name of a step")
    parser.add_argument("--results", type=Path, required=True, metavar="FILE", help="file of rows")
    parser.add_argument(
        "--end", type=float, default=math.inf, metavar="S", help="when it is ended, on the monotonic clock"
    )
    parser.add_argument("--commit", default="", help="commit of the sources")
    parser.add_argument("--kit", type=Path, metavar="FOLDER", help="what make gpu-kit has built")
    parser.add_argument("--emulated", action="store_true", help="on the processor, at small sizes")
    parser.add_argument("--quick", action="store_true", help="one cell of each kind, fewer rounds")
    parser.add_argument("--only", action="append", metavar="NAME", help="cells of these names")
    parser.add_argument("--factor", type=float, default=1.0, help="by which time limits are stretched")
    return parser.parse_args(arguments)

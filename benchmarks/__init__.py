"""Programs that measure daceml against bars: `python -m benchmarks.parity --check`, and so on."""

from __future__ import annotations

import os

# Before daceml reads it: a network that is not one program is a failure, and not measured in parts.
os.environ.setdefault("DACEML_FULLGRAPH", "1")
# What is measured is the program, also where eager PyTorch would be faster.
os.environ.setdefault("DACEML_MEASURE", "0")

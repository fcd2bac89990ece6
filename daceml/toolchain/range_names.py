"""What profilers call the steps of our programs."""

from __future__ import annotations

PREFIX = "daceml.step: "

"""What measured times of programs hold for: this processor, with so many cores and threads."""

from __future__ import annotations

import os

import torch

from daceml.toolchain.processor import cpu_model


def fingerprint() -> str:
    """What decides how fast programs are besides themselves: processor, cores, torch's threads."""
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    return f"{cpu_model()}, {cores} cores, {threads} {'thread' if threads == 1 else 'threads'}"

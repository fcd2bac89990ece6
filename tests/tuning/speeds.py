"""The speeds of a machine that does not exist."""

from __future__ import annotations

from daceml.tuning.machine_speeds import Machine

MACHINE = Machine(
    threads=2,
    memory_bytes_per_s=1e10,
    cached_bytes_per_s=1e11,
    exponentials_per_s=1e9,
    product_flops_per_s=1e11,
    region_us=2.0,
    call_us=1.0,
    logarithms_per_s=5e8,
    error_functions_per_s=4e8,
    divisions_per_s=1e10,
    powers_per_s=2e8,
    additions_per_s=2e9,
    streamed_bytes_per_s=2e10,
)

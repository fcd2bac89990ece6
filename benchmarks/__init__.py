"""Programs that measure daceml against bars: `python -m benchmarks.parity --check`, and so on."""

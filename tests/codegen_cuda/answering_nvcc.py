"""A program that answers as nvcc does and compiles nothing."""

from __future__ import annotations

from pathlib import Path

LISTED = {"12": (50, 70, 72, 75, 80, 86, 89, 90), "13": (75, 80, 86, 89, 90, 100, 120)}


def nvcc_of(folder: Path, release: str) -> Path:
    """A program that answers as nvcc does, of a toolkit in the folder above."""
    fake = folder / "nvcc"
    listed = "".join(f"compute_{one}\\n" for one in LISTED.get(release.split(".")[0], ()))
    fake.write_text(f"""#!/bin/sh
case "$1" in
    --version) echo 'Cuda compilation tools, release {release}, V{release}.1' ;;
    --list-gpu-arch) printf '{listed}' ;;
    -dryrun) echo '#$ TOP={folder}/..' >&2 ;;
esac
""")
    fake.chmod(0o755)
    return fake

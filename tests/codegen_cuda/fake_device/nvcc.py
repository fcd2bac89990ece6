"""A stand-in for nvcc: compiles CUDA's text with the C++ compiler, so that kernels run in emulation.

It answers as nvcc does: its release, the architectures, where its headers are, and what the assembler would
say of each kernel, whose registers are invented.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from daceml.codegen_cuda.emulation.compiler import compile_kernel
from daceml.codegen_cuda.kernel_facts import mangled
from daceml.errors import BuildError

RUNTIME = Path(__file__).parent / "runtime"
# no release of CUDA: objects that are kept in a cache are not taken for those of a real compiler
RELEASE = "13.99"
REGISTERS = 32
_KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(")
_LAUNCH = re.compile(r"(\w+)<<<([^,]+), ([^,]+), ([^,]+), ([^>]+)>>>\(")


def in_cpp(text: str) -> str:
    """The text with launches that a C++ compiler can read: `kernel<<<grid, block, shared, stream>>>(…)`."""
    launch = r'FAKE_LAUNCH(\1, "\1", std::int64_t(\2), 1, 1, std::int64_t(\3), 1, 1, \4, \5, '
    return _LAUNCH.sub(launch, text)


def assembler_says(text: str) -> str:
    """What `ptxas -v` prints of the kernels of a text."""
    lines: list[str] = []
    for name in _KERNEL.findall(text):
        lines += (
            f"ptxas info    : Compiling entry function '{mangled(name)}v' for 'sm_90'",
            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
            f"ptxas info    : Used {REGISTERS} registers",
        )
    return "\n".join(lines)


def compile_text(source: Path, target: Path, includes: list[Path], cxx: str) -> None:
    """Write the object of a text; and what the assembler says, to stderr."""
    text = source.read_text()
    with tempfile.TemporaryDirectory() as folder:
        prelude = f'#include "{RUNTIME / "language.h"}"\n'
        made = compile_kernel(prelude + in_cpp(text), Path(folder), cxx=cxx, includes=includes)
        shutil.copyfile(made, target)
    sys.stderr.write(assembler_says(text) + "\n")


def main(cxx: str, headers: str, arguments: list[str]) -> int:
    """Answer one call of nvcc.

    Args:
        cxx: the C++ compiler.
        headers: the folder with `include/cuda_runtime.h`.
    """
    if arguments[0] == "--version":
        sys.stdout.write(f"Cuda compilation tools, release {RELEASE}, V{RELEASE}.0\n")
    elif arguments[0] == "--list-gpu-arch":
        sys.stdout.write("compute_80\ncompute_90\n")
    elif "-dryrun" in arguments:
        sys.stderr.write(f"#$ TOP={headers}\n")
    else:
        includes = [Path(one[2:]) for one in arguments if one.startswith("-I")]
        source, target = arguments[arguments.index("-c") + 1], arguments[arguments.index("-o") + 1]
        try:
            compile_text(Path(source), Path(target), [*includes, Path(headers) / "include"], cxx)
        except BuildError as error:
            sys.stderr.write(f"{error.why}\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

#!/usr/bin/env bash
# One shard of the GPU suite: bash benchmarks/gpu.sh --shard times-A [--kernels FOLDER] [--check] …
# Ends within nine minutes; run it again and it goes on (exit code 3 says that something is left). Installs nothing
# and needs no network. PYTHON names the interpreter, PYTHONPATH folders of packages that it lacks; GPU_LIMIT_S is
# the limit in seconds.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

case "${1:-}" in
    ""|-h|--help)
        printf '%s\n' \
            'bash benchmarks/gpu.sh --shard NAME [--kernels FOLDER] [--only NAME] [--quick] [--check] [--retry]' \
            'bash benchmarks/gpu.sh table benchmarks/results/GPU' \
            'exit codes: 0 fine; 1 a bar was missed; 2 the request cannot be carried out; 3 cases are left: run it again' \
            'docs/gpu.md has the shards and what they measure'
        exit 0 ;;
esac

python="${PYTHON:-}"
if [[ -z "$python" ]]; then
    python=python3
    [[ -x "$root/.venv/bin/python" ]] && python="$root/.venv/bin/python"
fi
limit_s="${GPU_LIMIT_S:-540}"
if (( limit_s < 60 )); then
    echo "gpu.sh: GPU_LIMIT_S is $limit_s: a shard needs at least 60 seconds" >&2
    exit 2
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

arguments=("$@")
[[ "$1" == table ]] || arguments=(--budget "$((limit_s - 30))" "$@")
code=0
timeout --kill-after=15 "$limit_s" "$python" -m benchmarks.gpu "${arguments[@]}" || code=$?
if (( code == 124 || code == 137 )); then
    echo "gpu.sh: stopped after $limit_s seconds; what was measured is kept: run the same command again" >&2
    code=3
fi
exit "$code"

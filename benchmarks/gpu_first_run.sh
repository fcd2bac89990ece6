#!/usr/bin/env bash
# Everything that a device has to prove, in one run of at most ten minutes: docs/gpu.md.
#   bash benchmarks/gpu_first_run.sh --kit build/gpu-kit --out "$OUT"       on a device
#   bash benchmarks/gpu_first_run.sh --emulated                             a rehearsal, without one
# Asks no network. PYTHON names the interpreter; packages that it lacks come from the kit's wheels.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

python="${PYTHON:-}"
if [[ -z "$python" ]]; then
    python=python3
    [[ -x "$root/.venv/bin/python" ]] && python="$root/.venv/bin/python"
fi

kit="" emulated=no previous=""
for word in "$@"; do
    [[ "$previous" == --kit ]] && kit="$word"
    [[ "$word" == --kit=* ]] && kit="${word#--kit=}"
    [[ "$word" == --emulated ]] && emulated=yes
    previous="$word"
done

path="$root"
if [[ -d "$kit/wheels" && "$emulated" == no ]]; then
    site="$(mktemp -d)"
    trap 'rm -rf "$site"' EXIT
    # a machine that has the packages already needs none of them, so a failure here is only told
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --target "$site" "$kit"/wheels/*.whl \
        || echo "gpu_first_run.sh: the wheels in $kit could not be installed; going on with what is here" >&2
    path="$root:$site"
fi
PYTHONPATH="$path${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 \
    "$python" -m benchmarks.gpu.first_run --spent-s "$SECONDS" "$@" &
run=$!
# SIGTERM and Ctrl-C end the run, and every process that the run has started
trap 'kill -TERM "$run" 2>/dev/null || true' TERM INT
code=0
while kill -0 "$run" 2>/dev/null; do
    code=0
    wait "$run" || code=$?
done
exit "$code"

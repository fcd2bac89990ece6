"""Threads that still hold Python objects as a process ends."""

import subprocess
import sys

import pytest

_SCRIPT = """
import sys, threading, time
from daceml.runtime.threads_at_exit import let_threads_finish
for _ in range(int(sys.argv[1])):
    let_threads_finish()
def late():
    time.sleep(0.02)
    print("finished", flush=True)
threading.Thread(target=late, daemon=True).start()
"""


@pytest.mark.parametrize(("calls", "said"), [(0, ""), (2, "finished\n")])
def test_a_thread_finishes_before_the_interpreter_goes(calls: int, said: str):
    run = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(calls)], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout == said

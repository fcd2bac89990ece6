"""Which programs ran when: recorded while somebody asks, and on every thread."""

from __future__ import annotations

import threading
import time

import torch
from torch import nn

import daceml
from daceml.runtime import launcher
from daceml.runtime.call_log import start_call_log, stop_call_log
from daceml.runtime.program import Program


def bound() -> tuple[nn.Module, torch.Tensor, Program]:
    compiled = daceml.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), backward=False)
    x = torch.randn(4, 8)
    compiled(x)
    return compiled, x, compiled.session.latest.program


def test_each_call_has_a_row_with_the_times_of_its_steps():
    compiled, x, program = bound()
    before_ns = time.time_ns()
    start_call_log()
    compiled(x)
    compiled(x)
    rows = stop_call_log()
    after_ns = time.time_ns()
    assert [row.program for row in rows] == [program.number] * 2
    assert before_ns <= rows[0].start_ns <= rows[0].end_ns <= rows[1].start_ns <= rows[1].end_ns <= after_ns
    for row in rows:
        assert row.thread == threading.get_native_id()
        assert len(row.step_us) == len(program.manifest.steps)
        assert 0 < sum(row.step_us) <= (row.end_ns - row.start_ns) / 1e3 + 1


def test_nothing_is_recorded_outside():
    compiled, x, _ = bound()
    compiled(x)
    start_call_log()
    assert stop_call_log() == ()
    compiled(x)
    assert stop_call_log() == ()


def test_threads_have_their_own_rows():
    compiled, x, _ = bound()
    start_call_log()
    threads = [threading.Thread(target=lambda: [compiled(x) for _ in range(20)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    numbers = {thread.native_id for thread in threads}
    for thread in threads:
        thread.join()
    rows = stop_call_log()
    assert len(rows) == 40 and {row.thread for row in rows} == numbers
    # times of one call are never added to those of another
    assert all(sum(row.step_us) <= (row.end_ns - row.start_ns) / 1e3 + 1 for row in rows)


def test_a_profile_goes_on_meanwhile():
    _compiled, x, program = bound()
    start_call_log()
    times = program.profile([x], calls=3)
    rows = stop_call_log()
    assert len(rows) == 3
    sums = [sum(column) / 3 for column in zip(*(row.step_us for row in rows), strict=True)]
    torch.testing.assert_close(sums, times, rtol=1e-9, atol=0.0)


def test_the_folder_of_a_bound_program_is_known():
    _, _, program = bound()
    assert launcher.folders()[program.number] == program.stored.folder

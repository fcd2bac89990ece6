"""The fake device itself: it refuses what a device refuses, and shows what a device would get wrong."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from contextlib import AbstractContextManager

import pytest
import torch

from tests.codegen_cuda.fake_device import streams
from tests.codegen_cuda.fake_device.kernels import launch
from tests.codegen_cuda.fake_device.streams import Order, order, runtime

ADD = """
__global__ void add(float* x, std::int64_t count) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) x[i] += 1;
}
extern "C" int add_in_blocks(void* stream, float* x, std::int64_t count, std::int64_t threads) {
    return DACEML_LAUNCH(add, (count + threads - 1) / threads, 1, 1, threads, 1, 1, 0, stream, x, count);
}
__global__ void four(float* x) { reinterpret_cast<daceml::Vector<float, 4>*>(x)->elements[3] = 7; }
extern "C" int store_four(void* stream, float* x) {
    return DACEML_LAUNCH(four, 1, 1, 1, 1, 1, 1, 0, stream, x);
}
"""


def in_a_process(text: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the fake device; what ends its process does not end this one."""
    head = "import ctypes, torch\nfrom tests.codegen_cuda.fake_device.kernels import launch\n"
    return subprocess.run([sys.executable, "-c", head + text], capture_output=True, text=True, check=False)


# ---- order: each of the two hides what the other one shows


@pytest.mark.parametrize("waits", [False, True])
def test_a_stream_that_does_not_wait_reads_what_is_not_there_yet(waits: bool):
    with order(Order.LATE):
        x, aside = torch.zeros(4, device="cuda"), torch.cuda.Stream()
        torch.cuda.synchronize()
        x.fill_(5)
        if waits:
            aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            assert (x * 2).cpu().tolist() == [10 if waits else 0] * 4


@pytest.mark.parametrize("waits", [False, True])
def test_a_stream_that_nobody_waits_for_writes_too_late(waits: bool):
    with order(Order.LATE):
        x, aside = torch.zeros(4, device="cuda"), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(aside):
            x.add_(1)
        if waits:
            torch.cuda.current_stream().wait_stream(aside)
        assert (x * 3).cpu().tolist() == [3 if waits else 0] * 4


@pytest.mark.parametrize("waits", [False, True])
def test_memory_is_written_before_another_stream_has_read_it(waits: bool):
    with order(Order.OTHERS_FIRST):
        x, aside = torch.ones(4, device="cuda"), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(aside):
            y = x * 2
        if waits:
            torch.cuda.current_stream().wait_stream(aside)
        x.fill_(50)
        with torch.cuda.stream(aside):
            assert y.cpu().tolist() == [2 if waits else 100] * 4


def test_an_event_is_reached_when_its_stream_comes_to_it():
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    x = torch.zeros(8, device="cuda")
    before.record()
    x.add_(1)
    after.record()
    assert not after.query()
    after.synchronize()
    assert after.query() and before.elapsed_time(after) > 0


def test_a_replay_runs_everything_again():
    """Kernels, operators of torch's, copies: on what memory holds at each replay."""
    x, y = torch.zeros(6, device="cuda"), torch.zeros(6, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert launch(ADD, "add_in_blocks", x, 6, 4) == 0
        y.copy_(x * 10)
    assert x.cpu().tolist() == y.cpu().tolist() == [0] * 6
    for number in (1, 2):
        graph.replay()
        assert x.cpu().tolist() == [number] * 6 and y.cpu().tolist() == [10 * number] * 6


def test_branches_of_a_graph_wait_for_each_other():
    with order(Order.OTHERS_FIRST):
        x, aside = torch.zeros(2, device="cuda"), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.add_(1)
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                y = x * 3
            x2 = x + 5  # beside the other branch
            torch.cuda.current_stream().wait_stream(aside)
            z = y + x2
        graph.replay()
        assert z.cpu().tolist() == [9, 9]


# ---- refusals


def capturing() -> AbstractContextManager[None]:
    """A capture whose graph nobody needs."""
    return torch.cuda.graph(torch.cuda.CUDAGraph())


def test_a_branch_that_nobody_waits_for_ends_no_capture(refusing: None):
    x, aside = torch.zeros(2, device="cuda"), torch.cuda.Stream()

    def branch() -> None:
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            x.add_(1)

    with pytest.raises(RuntimeError, match="has work that nobody waits for"), capturing():
        branch()


def test_a_capture_waits_for_nothing_outside(refusing: None):
    event = torch.cuda.Event()
    event.record()
    with pytest.raises(RuntimeError, match="it waits for a stream that is not captured"), capturing():
        torch.cuda.current_stream().wait_event(event)


def test_a_capture_cannot_be_waited_for(refusing: None):
    total = torch.ones(2, device="cuda").sum()
    with pytest.raises(RuntimeError, match="captured: it is waited for"), capturing():
        total.item()


@pytest.mark.parametrize(
    ("count", "threads", "said"),
    [(4096, 2048, "blocks of 2048 x 1 x 1 threads"), (2**40, 32, "grid of 34359738368 x 1 x 1")],
)
def test_launches_of_sizes_that_no_device_has(refusing: None, count: int, threads: int, said: str):
    assert launch(ADD, "add_in_blocks", torch.zeros(4, device="cuda"), count, threads) != 0
    assert said in streams.last_refusal()


def test_launches_with_memory_of_the_host(refusing: None):
    assert launch(ADD, "add_in_blocks", torch.zeros(4), 4, 32) != 0
    assert "argument 0 of add lies in the memory of the host" in streams.last_refusal()


def test_launches_with_memory_of_another_device(refusing: None):
    assert launch(ADD, "add_in_blocks", torch.zeros(4, device="cuda:1"), 4, 32) != 0
    assert "lies in the memory of cuda:1, it runs on cuda:0" in streams.last_refusal()


def test_launches_on_streams_of_another_device(refusing: None):
    other = torch.cuda.Stream("cuda:1")
    assert launch(ADD, "add_in_blocks", torch.zeros(4, device="cuda"), 4, 32, stream=other.cuda_stream) != 0
    assert "a stream of another device" in streams.last_refusal()


def test_launches_on_the_default_stream_where_another_is_current(refusing: None):
    x = torch.zeros(4, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        assert launch(ADD, "add_in_blocks", x, 4, 32, stream=0) != 0
    assert "another stream than torch's current one" in streams.last_refusal()


def test_kernels_that_leave_their_memory(refusing: None):
    """Segments of torch's allocator have a closed page on each side."""
    x = torch.zeros(5 << 20, device="cuda")
    assert launch(ADD, "add_in_blocks", x, 2 * x.numel(), 1024) == 0
    with pytest.raises(RuntimeError, match="touches memory that belongs to no array"):
        torch.cuda.synchronize()


def test_functions_without_a_stand_in_have_their_name_said(refusing: None):
    assert runtime().cudaMallocManaged(None, ctypes.c_size_t(4), 1) != 0
    assert streams.last_refusal().endswith("cudaMallocManaged has no stand-in")


def test_operators_without_a_stand_in_have_their_name_said():
    with pytest.raises(
        NotImplementedError, match=r"aten._fft_r2c.default has no stand-in on the fake device"
    ):
        torch.fft.rfft(torch.zeros(4, device="cuda"))


def test_operands_on_two_devices():
    with pytest.raises(RuntimeError, match=r"expected all tensors on one device, found \[0, 1\]"):
        torch.zeros(2, device="cuda:0") + torch.zeros(2, device="cuda:1")


def test_fresh_memory_is_not_zero():
    assert torch.isnan(torch.empty(32 << 20, device="cuda")[:8]).all()


# ---- what ends a process


def test_the_host_cannot_read_memory_of_a_device():
    done = in_a_process("""
x = torch.ones(4, device="cuda")
torch.cuda.synchronize()
ctypes.c_float.from_address(x.data_ptr()).value
""")
    assert done.returncode == -signal.SIGSEGV, done.stderr


@pytest.mark.parametrize(("first", "fits"), [(4, True), (1, False)])
def test_vectors_at_odd_addresses(first: int, fits: bool):
    done = in_a_process(f"""
x = torch.zeros(8, device="cuda")
assert launch({ADD!r}, "store_four", x[{first}:]) == 0
print(x.tolist())
""")
    if fits:
        assert done.stdout.strip() == str([0.0] * 7 + [7.0]), done.stderr
    else:
        assert done.returncode in (-signal.SIGILL, -signal.SIGTRAP)

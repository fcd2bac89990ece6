"""Times of several variants, measured in turn by processes that stay alive, as ratios within each round.

A variant measured after another meets a different machine. So each has a process of its own (a heap and an
allocator setting of its own), all stay alive, and a driver asks them one after the other for a slice of
calls. The order turns from round to round, a round that somebody else disturbed is dropped, and ratios are
taken within rounds.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import quiet
from benchmarks.rounds import FOREIGN_LIMIT, Measurement, Slice, order_of_round
from daceml.runtime.timing.machine_load import cpu_times, foreign_share

if TYPE_CHECKING:
    from collections.abc import Generator
    from multiprocessing.connection import Connection

Step = Callable[[], object]

# Large tensors otherwise cost fresh pages at every call, which hides everything that is measured here.
TUNED_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "1000000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Something to time.

    Attributes:
        name: its column.
        build: makes the step in the variant's own process; picklable (a module's function or a partial
            of one).
        environment: variables its process starts with, on top of the allocator's.
        allocator: settings of its allocator; none are those of the machine.
        optional: without it, where it cannot be built or run, the others are measured all the same.
    """

    name: str
    build: Callable[[], Step]
    environment: Mapping[str, str] = field(default_factory=dict)
    allocator: Mapping[str, str] = field(default_factory=lambda: TUNED_ALLOCATOR)
    optional: bool = False


def measure(
    variants: Sequence[Variant],
    *,
    rounds: int = 12,
    slice_s: float = 0.15,
    foreign_limit: float = FOREIGN_LIMIT,
    patience: int = 3,
    limit_s: float = float("inf"),
) -> Measurement:
    """Run rounds until `rounds` of them are clean, or `patience` times as many have been run.

    Args:
        limit_s: seconds after which no round begins once enough are clean for an interval, and twice as many
            in any case; building is not counted.
    Raises:
        RuntimeError: a variant's process failed; the message holds its traceback.
    """
    names = tuple(variant.name for variant in variants)
    if len(set(names)) != len(names):
        raise ValueError(f"variants share a name: {names}")
    done: list[Mapping[str, Slice]] = []
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        # Built one after the other: compiling two at once would only make both slow.
        ask: dict[str, Callable[[float], Slice]] = {}
        for variant in variants:
            try:
                asked = stack.enter_context(_process(variant))
                asked(slice_s)  # warms caches and the clock of the core
            except RuntimeError as error:
                if not variant.optional:
                    raise
                missing[variant.name] = str(error).strip().splitlines()[-1]
            else:
                ask[variant.name] = asked
        names = tuple(ask)
        begin = time.monotonic()
        for number in range(rounds * patience):
            done.append({name: ask[name](slice_s) for name in order_of_round(names, number)})
            result = Measurement(names=names, rounds=tuple(done), foreign_limit=foreign_limit)
            limit = limit_s if result.measured else 2 * limit_s
            if len(result.clean) >= rounds or time.monotonic() - begin >= limit:
                break
    return Measurement(names=names, rounds=tuple(done), foreign_limit=foreign_limit, missing=missing)


def time_slice(step: Step, slice_s: float, calls: int) -> list[float]:
    """Microseconds per call of batches of `calls` calls, for about `slice_s` seconds; at least one batch."""
    samples: list[float] = []
    end = time.perf_counter() + slice_s
    while not samples or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            step()
        samples.append((time.perf_counter() - start) * 1e6 / calls)
    return samples


def calls_per_batch(step: Step, *, at_least_us: float = 1000.0, most: int = 4096) -> int:
    """How many calls a batch needs so that reading the clock does not count."""
    calls = 1
    while calls < most and time_slice(step, 0.0, calls)[0] * calls < at_least_us:
        calls *= 2
    return calls


@contextmanager
def _process(variant: Variant) -> Generator[Callable[[float], Slice]]:
    """A process that built the variant; yields what asks it for a slice, and ends it."""
    context = multiprocessing.get_context("spawn")  # the allocator reads its settings when a program starts
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, variant.build), daemon=False)
    # No daemon: a compiler in it may start processes of its own. It ends by itself when its pipe closes.
    with _environment({**variant.allocator, **variant.environment}):
        child.start()
    theirs.close()

    def ask(request: float | None) -> Any:
        if request is not None:
            ours.send(request)
        try:
            kind, value = ours.recv()
        except EOFError:
            child.join(5)
            raise RuntimeError(f"variant {variant.name!r} ended with exit code {child.exitcode}") from None
        if kind == "failed":
            raise RuntimeError(f"variant {variant.name!r} failed:\n{value}")
        return value

    try:
        ask(None)
        yield ask
    finally:
        ours.close()
        child.join(5)
        if child.is_alive():
            child.terminate()
            child.join()


def _serve(pipe: Connection, build: Callable[[], Step]) -> None:
    """The variant's process: build, then answer each request for a slice until the pipe is closed."""
    import traceback

    try:
        step = build()
        step()
        quiet.claim_priority()  # not before: a compiler at work need not keep everybody else from theirs
        calls = calls_per_batch(step)
        pipe.send(("ready", calls))
        while True:
            slice_s = pipe.recv()
            if calls == 1:
                step()  # others have used the caches since; short steps warm up within a batch
            before, own = cpu_times(), time.process_time()
            samples = time_slice(step, slice_s, calls)
            own_s = time.process_time() - own
            foreign = foreign_share(before, cpu_times(), own_s)
            pipe.send(("slice", Slice(duration_us=median(samples), foreign=foreign)))
    except EOFError:
        return
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
        raise SystemExit(1) from None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    """Set variables of this process, so that one started meanwhile inherits them, and restore them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

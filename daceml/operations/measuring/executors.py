"""Who measures: this process, processes of its own, or the workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class InProcess(Executor):
    """Does the work at once, where it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def processes(
    workers: int = 1, *, threads: int | None = None
) -> Callable[[], AbstractContextManager[Executor]]:
    """New processes: an operation that crashes ends one of them, and not the campaign.

    Several at once share caches and memory, and measure what that costs.

    Args:
        threads: of torch in each; those of this process where it is not given.
    """

    def made() -> Executor:
        import torch

        return ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),  # a fork would share a heap, and locks, with us
            initializer=_begin_worker,
            initargs=(threads or torch.get_num_threads(),),
        )

    return made


def of_client(client: Any) -> Callable[[], AbstractContextManager[Executor]]:
    """The workers of a `dask.distributed.Client`, which stays open; one thread in each."""

    @contextmanager
    def made() -> Generator[Executor]:
        # a job that a worker has measured is not measured again for its result
        yield client.get_executor(pure=False)

    return made


def _begin_worker(threads: int) -> None:
    import torch

    # Ctrl-C goes to every process of a terminal; the one that began the campaign decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)

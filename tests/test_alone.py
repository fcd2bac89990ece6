"""A test that measures has the machine to itself."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.support.alone import turn
from tests.support.waiting import until


def test_a_test_that_measures_waits_and_is_waited_for(tmp_path: Path):
    order: list[str] = []
    first_may_end, lone_may_end = threading.Event(), threading.Event()

    def test(name: str, may_end: threading.Event | None = None, *, alone: bool = False) -> None:
        with turn(tmp_path, alone=alone):
            order.append(f"{name} begins")
            if may_end is not None:
                assert may_end.wait(60)
            order.append(f"{name} ends")

    def started(*arguments: object, **options: bool) -> threading.Thread:
        thread = threading.Thread(target=test, args=arguments, kwargs=options, daemon=True)
        thread.start()
        return thread

    threads = [started("first", first_may_end)]
    until(lambda: "first begins" in order)
    test("beside it")
    threads.append(started("lone", lone_may_end, alone=True))
    threads[1].join(0.2)
    assert "lone begins" not in order
    threads.append(started("next"))
    threads[2].join(0.2)
    assert "next begins" not in order, "a test that waits to be alone is not overtaken"
    first_may_end.set()
    until(lambda: "lone begins" in order)
    threads[2].join(0.2)
    assert "next begins" not in order
    lone_may_end.set()
    for thread in threads:
        thread.join(60)
    assert order[-4:] == ["lone begins", "lone ends", "next begins", "next ends"]

"""Signs of life: every rank says in a store, twice a second, that it lives and how far it has come.

When something does not end, the others' signs tell why: a rank that gives none was killed or has lost its
machine, one that has said goodbye has ended, and one that has begun fewer all-reduces does not come.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    from daceml.distributed.collectives.group import Group

INTERVAL_S = 0.5
# Without a sign for this long a rank is lost: a loaded machine delays one, hardly several
_SILENT_S = 4 * INTERVAL_S
_GOODBYE = "ended"


@dataclass(frozen=True, kw_only=True)
class Sign:
    """What a rank has said last.

    Attributes:
        count: how many signs it has given; `ended` whether that was its last one.
        begun: how many all-reduces it has begun.
        doing: what it does.
    """

    count: int
    begun: int
    doing: str

    @property
    def ended(self) -> bool:
        """Whether the rank has said goodbye."""
        return self.doing == _GOODBYE


class Heartbeat:
    """This rank's signs, and a look at those of the others.

    Args:
        group: tells where the store is, which rank 0 keeps.
        timeout_s: for reaching the store.
    """

    def __init__(self, group: Group, timeout_s: float) -> None:
        from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

        self.rank, self.size = group.rank, group.size
        limit = timedelta(seconds=timeout_s)
        kept: TCPStore | None = None
        if group.rank == 0:
            kept = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False, timeout=limit)
        host, _, port = group.tell("" if kept is None else f"{_own_host()}:{kept.port}").rpartition(":")
        self.store: TCPStore = kept or TCPStore(host, int(port), wait_for_workers=False, timeout=limit)
        self.begun, self.doing = 0, "starting"
        self._count = 0
        self._seen: dict[int, tuple[Sign | None, float]] = {}
        self._over = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._run, name="daceml-heartbeat", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def problem(self, waited_for: str) -> tuple[list[int], str] | None:
        """Which ranks have failed, or do not come, and how that is known; None where all keep up.

        Takes some seconds: a rank is silent if it says nothing meanwhile.

        Args:
            waited_for: what this rank has begun, in words.
        """
        try:
            before = self._signs()
            started = time.monotonic()
            while True:
                now = self._signs()
                silent = [r for r, s in now.items() if s is not None and s == before[r] and not s.ended]
                if not silent or time.monotonic() - started > _SILENT_S:
                    break
                time.sleep(INTERVAL_S)
        except (RuntimeError, OSError) as error:
            if self.rank == 0:
                return None
            return [0], f"rank 0 keeps the store of signs of life, which does not answer: {_line(error)}"
        ended = [r for r, s in now.items() if s is not None and s.ended]
        late = [r for r, s in now.items() if s is not None and s.begun < self.begun]
        for ranks, why in (
            (silent, f"gave no sign of life for {_SILENT_S:g} s: killed, stopped, or out of reach"),
            (ended, "has ended: its process is over"),
            ([r for r, s in now.items() if s is None], "has never given a sign of life"),
            (late, f"lives, and has not come to {waited_for}"),
        ):
            if ranks:
                return ranks, "\n".join(f"rank {r} {why}{_last(now[r])}" for r in ranks)
        return None

    def await_key(self, key: str, who: int, patience_s: float) -> str:
        """What another rank writes into the store, as long as that rank lives.

        Raises:
            TimeoutError: it lives and has not written.
            ConnectionError: it has failed; the text says how that is known.
        """
        until = time.monotonic() + patience_s
        while not self.store.check([key]):
            if time.monotonic() > until:
                raise TimeoutError(f"rank {who} lives, and has not answered for {patience_s:.0f} s")
            found = self.problem("what this rank waits for") if self._silent(who) else None
            if found is not None and who in found[0]:
                raise ConnectionError(found[1])
            time.sleep(0.02)
        return self.store.get(key).decode()

    # ---- this rank

    def _run(self) -> None:
        while not self._over.wait(INTERVAL_S):
            try:
                self._beat()
            except (RuntimeError, OSError):
                return  # the store's rank is gone: whoever waits for it will say so

    def _beat(self) -> None:
        self._count += 1
        self.store.set(f"sign/{self.rank}", f"{self._count} {self.begun} {self.doing}")

    def stop(self) -> None:
        """Give no more signs."""
        self._over.set()
        self._thread.join(timeout=1.0)

    def end(self) -> None:
        """Say goodbye; a second time it does nothing."""
        if self._over.is_set():
            return
        self.stop()
        self.doing = _GOODBYE
        with suppress(RuntimeError, OSError):
            self._beat()

    # ---- the others

    def _signs(self) -> dict[int, Sign | None]:
        others = (rank for rank in range(self.size) if rank != self.rank)
        return {rank: self._sign(rank) for rank in others}

    def _sign(self, rank: int) -> Sign | None:
        if not self.store.check([f"sign/{rank}"]):
            return None
        count, begun, doing = self.store.get(f"sign/{rank}").decode().split(" ", 2)
        return Sign(count=int(count), begun=int(begun), doing=doing)

    def _silent(self, rank: int) -> bool:
        """Whether a rank's latest sign is as old as to look closer; asked again and again."""
        sign, now = self._sign(rank), time.monotonic()
        seen = self._seen.get(rank)
        if seen is None or seen[0] != sign:
            self._seen[rank] = (sign, now)
            return sign is not None and sign.ended
        return now - seen[1] > _SILENT_S


def _last(sign: Sign | None) -> str:
    return "" if sign is None else f" (all-reduces begun: {sign.begun}; last: {sign.doing})"


def _own_host() -> str:
    """A name under which other ranks reach this process."""
    given = os.environ.get("MASTER_ADDR")
    if given and os.environ.get("RANK") == "0":
        return given
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

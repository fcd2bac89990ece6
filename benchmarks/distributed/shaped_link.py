"""Two network namespaces joined by one link whose bandwidth is set: hosts of their own, but for the clock.

Linux shapes what leaves each end by a token bucket (tc-tbf), so that both directions have the full bandwidth
and neither ever exceeds it. Nothing outside the namespaces changes, and they go when their holders end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager

INTERFACE = "wire"
"""What both ends call the link."""

_HOLD_S = "3600"
# Tokens for one segment of 64 KiB and its headers. With fewer the kernel cuts each segment into packets,
# which costs a core more time than the rest of an all-reduce.
_BURST = 68_750
_QUEUE = 16 << 20  # bytes; more than sockets hold, so that nothing is dropped


def rate_command(bits_per_s: float) -> tuple[str, ...]:
    """Sets the rate of the end in whose namespace it runs; pure."""
    shaped = ("tbf", "rate", f"{bits_per_s:.0f}bit", "burst", f"{_BURST}b", "limit", f"{_QUEUE}b")
    return ("tc", "qdisc", "replace", "dev", INTERFACE, "root", *shaped)


def why_not() -> str | None:
    """Why this machine cannot do it; None where it can."""
    try:
        with linked_namespaces() as (prefix, _):
            _run((*prefix, *rate_command(1e9)))
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        return f"no link can be shaped in network namespaces here: {said.strip().splitlines()[-1]}"
    return None


@contextmanager
def linked_namespaces() -> Generator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """For each end, what stands before a command that is to run there.

    Raises:
        CalledProcessError: the system does not allow it.
    """
    # each says a line when it is in its namespace
    holding = ("unshare", "-n", "sh", "-c", f"echo; exec sleep {_HOLD_S}")
    holders = [
        subprocess.Popen(holding, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in "ab"
    ]
    try:
        for holder in holders:
            assert holder.stdout is not None, "it is a pipe"
            if not holder.stdout.readline():
                said = holder.communicate()[1]
                raise subprocess.CalledProcessError(holder.returncode, holding, stderr=said)
        first, second = (("nsenter", "-t", str(holder.pid), "-n") for holder in holders)
        peer = ("peer", "name", INTERFACE, "netns", str(holders[1].pid))
        _run((*first, "ip", "link", "add", INTERFACE, "type", "veth", *peer))
        for number, prefix in enumerate((first, second), 1):
            _run((*prefix, "ip", "addr", "add", f"10.77.0.{number}/24", "dev", INTERFACE))
            _run((*prefix, "ip", "link", "set", INTERFACE, "up"))
            _run((*prefix, "ip", "link", "set", "lo", "up"))
        yield first, second
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)

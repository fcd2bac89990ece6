"""torch's default generator in generated code: `random_stream.cpp` draws what torch would, faster.

The state goes back and forth as `torch.Generator.get_state` gives it. Whether it means what the library takes
it to mean is found out once in each process, on a generator of its own: a torch that draws otherwise draws
itself.
"""

from __future__ import annotations

import _thread
import ctypes
import logging
from typing import Any

import torch

log = logging.getLogger(__name__)

# daceml_exchange in program.h
ExchangeFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)

# What the library knows of a state: the rest is that of other distributions, and stays.
KNOWN_BYTES = 24 + 8 * 624
_TRIED_DRAWS = 1111
_TRIED_PROBABILITY = 0.7


def share_generator(native: ctypes.CDLL) -> None:
    """Let a library draw from torch's default generator, if it draws the same numbers as torch.

    Args:
        native: the launcher's library.
    """
    native.daceml_bernoulli_from.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_int64, ctypes.c_int64, ctypes.c_double),
    ]
    native.daceml_set_exchange.argtypes = [ExchangeFunction]
    if not draws_alike(native):
        log.warning("torch %s draws random numbers in an order that is not known here", torch.__version__)
        return
    native.daceml_set_exchange(_exchange)


def draws_alike(native: ctypes.CDLL) -> bool:
    """Whether numbers and the state after them are torch's."""
    theirs = torch.Generator(device="cpu").manual_seed(2)
    # an odd number of words before: draws take two, and come to stand across the blocks of the generator
    torch.empty(1, dtype=torch.float32, device="cpu").uniform_(generator=theirs)
    state = theirs.get_state()
    if state.numel() < KNOWN_BYTES:
        return False
    ours = torch.empty(_TRIED_DRAWS, dtype=torch.bool, device="cpu")
    native.daceml_bernoulli_from(
        state.data_ptr(), ours.data_ptr(), ours.element_size(), ours.numel(), _TRIED_PROBABILITY
    )
    expected = torch.empty_like(ours).bernoulli_(_TRIED_PROBABILITY, generator=theirs)
    return torch.equal(ours, expected) and torch.equal(state, theirs.get_state())


def exchanged(expected: int | None, state: int) -> int:
    """Replace the state of torch's default generator, if it is still the expected one.

    Args:
        expected: address of a state, or None to read the present one into `state`.
        state: address of the new one.
    Returns:
        0, or 1 where another one is there, which is then in `expected`.
    """
    generator = torch.default_generator
    present = generator.get_state()
    if expected is None:
        ctypes.memmove(state, present.data_ptr(), KNOWN_BYTES)
        return 0
    if ctypes.string_at(present.data_ptr(), KNOWN_BYTES) != ctypes.string_at(expected, KNOWN_BYTES):
        ctypes.memmove(expected, present.data_ptr(), KNOWN_BYTES)
        return 1
    ctypes.memmove(present.data_ptr(), state, KNOWN_BYTES)
    generator.set_state(present)
    return 0


@ExchangeFunction
def _exchange(expected: Any, state: Any) -> int:
    try:
        return exchanged(expected, state)
    except KeyboardInterrupt:
        _thread.interrupt_main()  # after the call: nothing may be raised into C
        return -1
    except Exception as error:
        # its caller lets torch draw instead
        log.warning("torch's generator: %s", error)
        return -1

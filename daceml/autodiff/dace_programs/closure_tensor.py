"""Tensors of modules as DaCe programs take them from their closure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dace import data


class ClosureTensor:
    """A tensor that a program asks for at every call, and reads and writes where it is then.

    DaCe takes it for an array: it has a shape, a descriptor and a pointer.

    Args:
        find: the tensor as it is now; called when a program runs, or asks for the type.
        describe: DaCe's descriptor of that tensor.
        gradient: what a backward pass adds the tensor's gradient to; None where it requires none.
        refusal: why a program cannot have gradients that flow through what reads the tensor; empty where it
            can. Asked when a program is parsed.
        identity: is equal for closure tensors that stand for one tensor, such as one that two modules share.
    """

    def __init__(
        self,
        find: Callable[[], Any],
        describe: Callable[[], data.Array],
        *,
        gradient: Callable[[], ClosureTensor | None] = lambda: None,
        refusal: Callable[[], str] = lambda: "",
        identity: Callable[[], object] | None = None,
    ) -> None:
        self._find, self._describe, self._gradient, self._refusal = find, describe, gradient, refusal
        self._identity = identity or (lambda: id(self))

    @property
    def descriptor(self) -> data.Array:
        """The type that the tensor has now."""
        return self._describe()

    @property
    def shape(self) -> tuple[Any, ...]:
        """The tensor's shape, (1,) for rank 0."""
        return tuple(self._describe().shape)

    @property
    def gradient(self) -> ClosureTensor | None:
        """What a backward pass adds the tensor's gradient to; None where it requires none."""
        return self._gradient()

    @property
    def refusal(self) -> str:
        """Why a program cannot have gradients that flow through what reads the tensor."""
        return self._refusal()

    @property
    def identity(self) -> object:
        """Equal for closure tensors that stand for one tensor now."""
        return self._identity()

    def __iter__(self) -> Iterator[Any]:
        """The rows of the tensor; what DaCe can go through, it does not take for a number."""
        return iter(self._find())

    def data_ptr(self) -> int:
        """Where the tensor's first element is."""
        return self._find().data_ptr()

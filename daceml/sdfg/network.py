"""The SDFG of a network together with its interface: what every stage takes and gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from daceml.sdfg.origin import NodeOrigin
from daceml.sdfg.passes import PassRecord

if TYPE_CHECKING:
    import dace
    import numpy as np

    from daceml.sdfg.sizes import Size


Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class IndexCheck:
    """Positions that are data and must lie in [lowest, extent) before anything reads through them.

    Attributes:
        array: integers, row-major.
        offset, step: elements `offset, offset + step, …` are the positions.
        extent: size of the dimension that they index.
        lowest: smallest position; None is -extent, since negative positions count from the end.
        ascending: the positions are starts of segments: from 0 on, none smaller than the one before.
        where: the operator, for the error.
    """

    array: str
    offset: int = 0
    step: int = 1
    extent: Size
    lowest: Size | None = None
    ascending: bool = False
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """An array of float32 in which no element may be NaN or of a larger magnitude than a limit.

    A program that finds one gives up, and another one, which needs no limits, takes its place for this call.

    Attributes:
        limit: prepared array of one element.
    """

    array: str
    limit: str


@dataclass(frozen=True, kw_only=True)
class WeightCheck:
    """Weights that must still be those of which a program's prepared arrays were made.

    A program that finds others gives up before it does anything, and makes its prepared arrays again.

    Attributes:
        arrays: the weights.
        fingerprint: prepared array of one element: a number of all their bytes.
    """

    arrays: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How an array is made of weights, when a program is bound and not at every call.

    Attributes:
        function: name in `daceml.runtime.weight_preparation`.
        sources: array names of the weights, or of arrays that were prepared before; "" where there is none.
        numbers, reals: further arguments of the function.
        packed: in an order of a vendor's own, which no pointer describes; else plain and row-major.
    """

    function: str
    sources: tuple[str, ...]
    numbers: tuple[tuple[int, ...], ...] = ()
    reals: tuple[float, ...] = ()
    packed: bool = True


@dataclass(kw_only=True)
class Network:
    """An SDFG of one state, and what its non-transient arrays mean.

    Rank-0 tensors are arrays of shape (1,), as DaCe wants them; `scalars` remembers which.

    Attributes:
        sdfg: one state; ONNX library nodes before lowering, maps and external calls after.
        inputs: array names of the user's inputs, in call order.
        outputs: array names of the user's outputs, in return order; a name may repeat.
        weights: array name -> key in the module's state_dict (parameters and buffers).
        constants: array name -> value, for every initializer that is neither.
        sizes: array name -> elements, of a scalar or vector of whole numbers that follow from sizes.
        prepared: array name -> how it is made of weights when a program is bound; the program owns it.
        device: "cuda" where tensors are on such a device, else "cpu".
        architecture: of that device: 90 for compute capability 9.0; None where nobody has said.
        live: whether nothing may be prepared: each call reads the weights themselves.
        mutations: array name of a new buffer value -> array name of the buffer (in `weights`) it replaces;
            the same name where the network writes the buffer in place.
        scalars: names of arrays whose tensor has rank 0.
        saved: arrays that the forward pass computes for the backward pass, though no result depends on them.
        checks: positions that depend on data.
        limits: arrays on whose magnitudes vendor kernels rely.
        weight_check: looks whether what is prepared is still right; None where weights do not change.
        signature: names as the user knows them, array name -> ONNX value name.
        passes: what every pass so far did and refused, in order.
        origins: array -> the ONNX nodes that compute it, or whose gradients it sums up; nothing of copies and
            other arrays that come from no node.
        traced: names of ONNX nodes -> nodes of the trace that was exported.
        preferred: operators and names of ONNX nodes ("Gemm Gemm_1") -> title of the implementation that
            they get if it applies.
        places: arrays that the running pass may change, where the recipe says so; None: all.
    """

    sdfg: dace.SDFG
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: dict[str, str] = field(default_factory=dict[str, str])
    constants: dict[str, np.ndarray] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    sizes: dict[str, tuple[Size, ...]] = field(default_factory=dict[str, "tuple[Size, ...]"])
    prepared: dict[str, Preparation] = field(default_factory=dict[str, Preparation])
    device: Device = "cpu"
    architecture: int | None = None
    live: bool = False
    mutations: dict[str, str] = field(default_factory=dict[str, str])
    scalars: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()
    checks: list[IndexCheck] = field(default_factory=list[IndexCheck])
    limits: list[LimitCheck] = field(default_factory=list[LimitCheck])
    weight_check: WeightCheck | None = None
    signature: dict[str, str] = field(default_factory=dict[str, str])
    passes: list[PassRecord] = field(default_factory=list[PassRecord])
    origins: dict[str, tuple[NodeOrigin, ...]] = field(default_factory=dict[str, tuple[NodeOrigin, ...]])
    traced: dict[str, str] = field(default_factory=dict[str, str])
    preferred: dict[str, str] = field(default_factory=dict[str, str])
    places: frozenset[str] | None = None

    def prepare(self, made: Preparation, name: str, like: dace.data.Data) -> str:
        """The array that is made in this way; a new one where there is none yet. Mutates the network.

        Args:
            name: of a new array, or what it begins with.
            like: has its shape, strides and element type.
        """
        known = next((array for array, how in self.prepared.items() if how == made), None)
        if known is not None:
            return known
        array, _ = self.sdfg.add_array(
            name, like.shape, like.dtype, strides=like.strides, transient=False, find_new_name=True
        )
        self.prepared[array] = made
        return array

    def may_change(self, place: str) -> bool:
        """Whether the running pass may change an array, or what makes it."""
        return self.places is None or place in self.places

    def absorb(self, array: str, arrays: Iterable[str]) -> None:
        """What computes an array computes, inside, what was in others, too. Mutates the network."""
        origins = (origin for a in (array, *arrays) for origin in self.origins.get(a, ()))
        self.origins[array] = tuple(dict.fromkeys(origins))

    @property
    def state(self) -> dace.SDFGState:
        """The only state of the network."""
        (state,) = self.sdfg.states()
        return state

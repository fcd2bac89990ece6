"""An ONNX model as DaCe's frontend sees it where a program calls the model."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dace import data

from daceml.autodiff import dace_programs
from daceml.autodiff.dace_programs import ClosureTensor
from daceml.errors import CallError, DacemlError, SignatureError
from daceml.frontend.onnx_import.identifiers import identifier
from daceml.module.programs.call_arguments import superfluous
from daceml.module.programs.closure import closure_of, held_tensor, own_prefix
from daceml.module.programs.network_sdfg import network_sdfg

if TYPE_CHECKING:
    import dace
    import torch
    from dace.frontend.python.common import SDFGClosure

    from daceml.sdfg.network import Network


class OnnxProgram:
    """The SDFG that programs nest for calls of an ONNX model, and the weights that it takes.

    Args:
        name: of the model.
        network: of its ONNX nodes. Mutated.
        weights: by the keys of `network.weights`.
    Raises:
        NoImplementationError, UnsupportedProgramError: the model is no part of a program.
    """

    def __init__(self, name: str, network: Network, weights: Mapping[str, torch.Tensor]) -> None:
        dace_programs.register()
        self.name = name
        prefix = own_prefix(name)
        names = {key: f"{prefix}_{identifier(key)}" for key in weights}
        self._tensors = {names[key]: held_tensor(lambda t=t: t) for key, t in weights.items()}
        self._arguments = network.inputs
        self._types = [network.sdfg.arrays[a].clone() for a in network.inputs]
        self._rank_0 = [a in network.scalars for a in network.inputs]
        self._sdfg = network_sdfg(network, arguments=self._arguments, weights=names)
        self._sdfg.name = prefix  # pyright: ignore[reportAttributeAccessIssue]

    def signature(self) -> tuple[list[str], list[str]]:
        """Names of arguments; none is a constant."""
        return [*self._arguments, *superfluous()], []

    def closure(self) -> dict[str, ClosureTensor]:
        """Name -> weight."""
        return dict(self._tensors)

    def resolver(self, program: SDFGClosure | None) -> SDFGClosure:
        """The same for the closure of a program; see `closure_of`."""
        return closure_of(self._tensors, program)

    def sdfg(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dace.SDFG:
        """The SDFG of a call, an object of its own.

        Args:
            args, kwargs: descriptors of arrays and scalars.
        Raises:
            SignatureError: too many arguments, or too few.
            CallError: an argument of another type, or of a shape that the model does not take.
        """
        try:
            given = dict(zip(self.signature()[0], args, strict=False)) | dict(kwargs)
            made = copy.deepcopy(self._sdfg)
            self._check(given)
        except DacemlError as refusal:
            refusal.__noskipcall__ = True  # pyright: ignore[reportAttributeAccessIssue]
            raise
        for name, value in given.items():
            if isinstance(value, data.Scalar):
                made.arrays[name] = data.Scalar(value.dtype, transient=False)
        return made

    def _check(self, given: Mapping[str, Any]) -> None:
        where = f"inputs of the model: {', '.join(self._arguments) or 'none'}"
        if set(given) != set(self._arguments):
            missing = [a for a in self._arguments if a not in given]
            raise SignatureError(
                f"{self.name} was called with other arguments in a DaCe program than it has inputs",
                where=where,
                why=f"{', '.join(missing)} is missing" if missing else f"{len(given)} were passed",
                fix="pass one array for each input",
            )
        for name, wanted, scalar in zip(self._arguments, self._types, self._rank_0, strict=True):
            value = given[name]
            shape: Any = tuple(getattr(value, "shape", ()))
            fits = isinstance(value, data.Data) and value.dtype == wanted.dtype
            if fits and not (scalar and isinstance(value, data.Scalar)):
                sizes = zip(shape, wanted.shape, strict=False)
                fits = len(shape) == len(wanted.shape) and all(map(_may_be, *zip(*sizes, strict=True)))
            if not fits:
                raise CallError(
                    f"{self.name} cannot take {name} in a DaCe program",
                    where=where,
                    why=f"it is {_described(value)}, where the model takes {_described(wanted)}",
                    fix="pass an array of this type and shape",
                )


def _described(value: Any) -> str:
    if not isinstance(value, data.Data):
        return repr(value)
    shape: Any = () if isinstance(value, data.Scalar) else value.shape
    return f"{value.dtype.to_string()} [{', '.join(map(str, shape))}]"


def _may_be(given: Any, wanted: Any) -> bool:
    """Whether a size is one that the model takes; symbols may be anything."""
    return (
        bool(getattr(wanted, "free_symbols", ()))
        or bool(getattr(given, "free_symbols", ()))
        or (int(given) == int(wanted))
    )

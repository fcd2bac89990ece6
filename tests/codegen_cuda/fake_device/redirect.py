"""Operators on CUDA tensors that run on the processor, on the same memory, as work of the current stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from tests.codegen_cuda.fake_device.memory import Place, place_of
from tests.codegen_cuda.fake_device.streams import enqueue

Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """What runs in place of an operator's kernel.

    Attributes:
        function: of tensors of the processor; the operator itself where None.
        to_host: whether its result is for the host, which waits for it; its shape need not be known before.
        draws: whether it draws random numbers.
        masks: whether its second operand may be a list of masks, whose positions the host counts first.
    """

    function: Function | None = None
    to_host: bool = False
    draws: bool = False
    masks: bool = False


def redirected(operator: Any, stand_in: StandIn) -> Function:
    """A kernel of an operator for CUDA's dispatch key.

    Shapes of results come from the operator's meta kernel. The operator runs when its stream does, and reads
    what its operands hold by then.
    """
    function = stand_in.function or operator
    written = {
        a.name for a in operator._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _plainly():
            device = _device_of(operator, args, kwargs)
            if stand_in.masks:
                args = (args[0], _positions(args[1]), *args[2:])
            with torch.cuda.device(device):
                generator = _generator(kwargs, device) if stand_in.draws else None
                if stand_in.to_host:
                    return _awaited(operator, function, tree_map(_place, (args, kwargs)), device)
                targets, results = _results(operator, args, kwargs, written, device)
                on_host = tree_map(_place, (args, kwargs))  # behind that, which resizes what is written
                places = [None if x is None else place_of(x) for x in targets]

                def run() -> None:
                    with _plainly(), torch.inference_mode(False), torch.no_grad():
                        given, named = tree_map(_tensor, on_host)
                        if generator is not None:
                            named["generator"] = generator()
                        found = function(*given, **named)
                        if places:
                            _store(places, found if isinstance(found, tuple | list) else (found,))

                enqueue(device, str(operator), run)
                return results

    return kernel


def refused(operator: Any) -> Function:
    """A kernel for CUDA's dispatch key of an operator without a stand-in."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{operator} has no stand-in on the fake device: it has to be named in fake_device/operators.py"
        )

    return kernel


@contextmanager
def _plainly() -> Iterator[None]:
    """Without those who look at operators, and without autograd, which has done its part."""
    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        stack.enter_context(torch._C._AutoDispatchBelowAutograd())
        yield


def _positions(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Positions instead of masks, one list for each dimension of these."""
    found: list[torch.Tensor | None] = []
    for one in indices:
        found += [one] if one is None or one.dtype != torch.bool else one.nonzero().unbind(1)
    return found


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    tree_map(lambda x: found.append(x) if isinstance(x, torch.Tensor) else None, (args, kwargs))
    return found


def _device_of(operator: Any, args: Any, kwargs: Any) -> int:
    named = kwargs.get("device")
    there = {x.device.index for x in _tensors(args, kwargs) if x.is_cuda}
    if named is not None and torch.device(named).type == "cuda":
        there.add(torch.device(named).index or 0)
    if len(there) != 1:
        raise RuntimeError(f"{operator}: expected all tensors on one device, found {sorted(there)}")
    (device,) = there
    for x in _tensors(args, kwargs):
        if not x.is_cuda and x.dim() > 0:
            raise RuntimeError(f"{operator}: expected all tensors on cuda:{device}, found one on {x.device}")
    return device


def _place(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return place_of(value) if value.is_cuda else value
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _tensor(value: Any) -> Any:
    return value.tensor() if isinstance(value, Place) else value


def _meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 and not value.is_cuda:
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def _results(
    operator: Any, args: Any, kwargs: Any, written: set[str], device: int
) -> tuple[list[torch.Tensor | None], Any]:
    """New tensors for results, None for an operand that the operator writes; and what the kernel returns."""
    schema = operator._schema
    in_place = schema.name.endswith("_")
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    found: list[Any] = [None] * len(schema.returns)
    if not in_place:
        on_meta, named = tree_map(_meta, (args, kwargs))
        result = operator(*on_meta, **named)
        found = list(result) if isinstance(result, tuple | list) else [result]
        shaped = dict(zip(names, on_meta, strict=False)) | named
        for name in written:
            if given.get(name) is not None and given[name].shape != shaped[name].shape:
                given[name].resize_(shaped[name].shape)
    if len(schema.returns) == 1 and str(schema.returns[0].type) == "List[Tensor]":
        made = [_like(one, device) for one in found]
        return list(made), made
    operands = [given[name] for name in names if name in written]
    targets: list[torch.Tensor | None] = []
    results: list[Any] = []
    for returned, one in zip(schema.returns, found, strict=True):
        if returned.alias_info is not None:
            results.append(operands.pop(0))
            targets.append(None)
        else:
            results.append(_like(one, device) if isinstance(one, torch.Tensor) else one)
            targets.append(results[-1] if isinstance(one, torch.Tensor) else None)
    return targets, None if not results else results[0] if len(results) == 1 else tuple(results)


def _like(meta: torch.Tensor, device: int) -> torch.Tensor:
    return torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype, device=f"cuda:{device}")


def _store(places: Sequence[Place | None], found: Sequence[Any]) -> None:
    for place, value in zip(places, found, strict=True):
        if place is not None and value is not None:
            place.tensor().copy_(value)


def _awaited(operator: Any, function: Function, on_host: Any, device: int) -> Any:
    """The result of an operator for which the host waits; tensors of it lie on the device again."""
    found: list[Any] = []

    def run() -> None:
        with _plainly(), torch.inference_mode(False), torch.no_grad():
            given, named = tree_map(_tensor, on_host)
            found.append(function(*given, **named))

    enqueue(device, str(operator), run)
    torch.cuda.current_stream(device).synchronize()
    return tree_map(lambda x: x.to(f"cuda:{device}") if isinstance(x, torch.Tensor) else x, found[0])


def _generator(kwargs: dict[str, Any], device: int) -> Callable[[], torch.Generator]:
    """Random numbers that follow from the seed of the device and from how many draws came before.

    While a graph is captured, its seed is taken, and each replay goes on where the last one has ended.
    """
    standard = kwargs.pop("generator", None) or torch.cuda.default_generators[device]
    made = torch.Generator()
    if torch.cuda.is_current_stream_capturing():
        made.manual_seed(_seed(standard.initial_seed(), -1))
    else:
        offset = standard.get_offset()
        standard.set_offset(offset + 4)
        made.manual_seed(_seed(standard.initial_seed(), offset))
    return lambda: made


def _seed(seed: int, offset: int) -> int:
    return (seed * 1_000_003 + offset + 1) % 2**63

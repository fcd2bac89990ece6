"""How long a program takes, from its static costs: no kernel is compiled for it.

A step that the standard recipe's program has, too, takes what it took there. Of any other step its bytes,
accesses, special functions and products are set against the speeds of the machine, and the result is scaled
by what such steps of the standard recipe's program took against what was predicted of them.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import hypot
from statistics import median
from typing import TYPE_CHECKING, Any

from daceml.codegen.planning.step_costs import step_cost
from daceml.runtime.records.manifest import EXAMPLE_SIZE
from daceml.sdfg.costs import Cost
from daceml.sdfg.external import AtenCall, FreshResult, TensorView
from daceml.sdfg.loops import shared_iterations
from daceml.sdfg.outline import KernelCall
from daceml.sdfg.sizes import number, size, size_bytes
from daceml.sdfg.tensor_lists import ListCall
from daceml.tuning.machine_speeds import Machine
from daceml.tuning.reuse_distance import DISTANCES, Reach, footprint_bytes, past_the_caches, reaches

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.codegen.planning.steps import Step
    from daceml.sdfg.network import Network

_WORD = re.compile(r"[A-Za-z_]\w*")
# Calling a kernel: a function pointer and its arguments
_KERNEL_US = 0.2
# A vector operation takes as long as moving these within the nearest cache, by which torch calls are timed
_BYTES = 2.5
# Of one scalar operation, an access that waits for a cache line, a loop's begin
_SCALAR_US, _STRIDED_US, _LOOP_US = 1.2e-4, 8e-3, 3e-3
_FAR = 6  # of `DISTANCES`, from which on no cache has what was touched
_RUNTIME_US = 20.0  # ONNX Runtime: bindings of inputs and results
_NARROWEST, _WIDEST = 0.25, 4.0  # of a scale


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What a prediction looks at.

    Attributes:
        key: equal for steps that do the same to arrays of the same kinds.
        kind: as in `StepRecord`.
        function: that a step of torch's calls; empty for others.
        variety: what else tells its time apart, the coarsest first: as `AtenCall` has it, and behind that how
            its arrays lie in memory.
        pieces: that threads may share; 1 where one thread does all of it.
        unique_bytes, total_bytes, flops, special_functions, exponential_tenths, logarithm_tenths,
            error_function_tenths, division_tenths, power_tenths, streamed_bytes, vector_operations,
            scalar_operations, dependent_operations, strided_accesses, loop_starts: as in `Cost`.
        reach: of the unique bytes, how many were touched how far back (`reuse_distance.py`), and what a
            library copies for itself; empty where nobody knows.
    """

    key: str
    kind: str
    function: str = ""
    variety: tuple[str, ...] = ()
    pieces: int = 1
    unique_bytes: int = 0
    total_bytes: int = 0
    flops: int = 0
    special_functions: int = 0
    exponential_tenths: int = 0
    logarithm_tenths: int = 0
    error_function_tenths: int = 0
    division_tenths: int = 0
    power_tenths: int = 0
    streamed_bytes: int = 0
    vector_operations: int = 0
    scalar_operations: int = 0
    dependent_operations: int = 0
    strided_accesses: int = 0
    loop_starts: int = 0
    reach: Reach = ()

    @property
    def parallel(self) -> bool:
        """Whether threads share it."""
        return self.pieces > 1

    def threads(self, most: int) -> float:
        """How many of so many threads it keeps busy, on the average."""
        return self.pieces / -(-self.pieces // most) if self.pieces > 0 else 1.0


AMOUNTS = tuple(field.name for field in fields(Cost))
"""Those of a step's facts that are amounts of work."""


def program_facts(plans: Sequence[Plan], sizes: Mapping[str, int]) -> tuple[StepFacts, ...]:
    """The facts of the steps of programs that run one after the other.

    Args:
        sizes: of symbolic dimensions.
    """
    held = [footprint_bytes(plan, _known_sizes(plan, sizes)) for plan in plans]
    return tuple(
        fact
        for plan, own in zip(plans, held, strict=True)
        for fact in _step_facts(plan, sizes, sum(held) - own)
    )


def _known_sizes(plan: Plan, sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: sizes.get(name, EXAMPLE_SIZE) for name in plan.network.sdfg.symbols}


def _step_facts(plan: Plan, sizes: Mapping[str, int], elsewhere_bytes: int) -> Iterator[StepFacts]:
    network = plan.network
    known = _known_sizes(plan, sizes)
    for step, reach in zip(plan.steps, reaches(plan, known, elsewhere_bytes), strict=True):
        kind, cost = step_cost(step, network)
        amounts: Any = cost.at(known)
        yield StepFacts(
            key=_digest(_renamed(step, network, lambda array: _description(array, network))),
            kind=kind,
            function=_function(step.action) if isinstance(step.action, AtenCall) else "",
            variety=_variety(step.action, network) if isinstance(step.action, AtenCall) else (),
            pieces=_pieces(step, known),
            reach=_with_copies(_of_unique(reach, amounts.unique_bytes), step, network, known),
            **{name: getattr(amounts, name) for name in AMOUNTS},
        )


def _function(call: AtenCall) -> str:
    # where its weight is packed a convolution spares a copy, and is the same otherwise
    return "convolution" if call.function == "packed_convolution" else call.function


def _variety(call: AtenCall, network: Network) -> tuple[str, ...]:
    """Of a call that has one: also whether channels are innermost in memory, in what it reads and writes."""
    if not call.variety:
        return ()
    arrays, (coarsest, *finer) = network.sdfg.arrays, call.variety
    ends = (next(iter(call.reads())), call.writes)
    order = " to ".join("last" if _channels_last(arrays[one]) else "first" for one in ends)
    return (coarsest, f"channels {order}", *finer)


def _channels_last(desc: Any) -> bool:
    strides = [size(one) for one in desc.strides]
    return len(strides) > 1 and strides[1] == 1 and strides[-1] != 1


def _with_copies(reach: Reach, step: Step, network: Network, sizes: Mapping[str, int]) -> Reach:
    """With what a library's convolution copies: it brings rows and weights into its own order, and back.

    Loops of our own, which take what there is, have no temporary arrays.
    """
    call = step.action
    if not isinstance(call, AtenCall) or not call.variety or not number(call.temporary_bytes, sizes):
        return reach
    arrays = network.sdfg.arrays
    seen = [a.array for a in call.arguments if isinstance(a, TensorView | FreshResult)]
    copied = [
        arrays[name]
        for name in dict.fromkeys((*seen, call.writes))
        if len(arrays[name].shape) > 1 and not _channels_last(arrays[name])
    ]
    count = sum(number(size_bytes(desc), sizes) for desc in copied)
    place = bisect_left(DISTANCES, sum(reach) + count)
    return tuple(n + (2 * count if i == place else 0) for i, n in enumerate(reach))


def _of_unique(reach: Reach, unique_bytes: int) -> Reach:
    """Of arrays that a step touches a part of, that part."""
    whole = sum(reach)
    return tuple(round(count * unique_bytes / whole) for count in reach) if whole else reach


def identity(plans: Sequence[Plan]) -> str:
    """Equal for programs that run the same kernels and calls in the same order over arrays used alike."""
    texts: list[str] = []
    for plan in plans:
        numbers: dict[str, str] = {}

        def numbered(array: str, plan: Plan = plan, numbers: dict[str, str] = numbers) -> str:
            if array not in numbers:
                location = plan.location(array) if plan.roots[array] in plan.locations else ""
                numbers[array] = f"<{len(numbers)} {location} {_description(array, plan.network)}>"
            return numbers[array]

        texts += [_renamed(step, plan.network, numbered) for step in plan.steps]
        texts += [f"{array} from {numbered(array)}" for array in plan.network.outputs if array in plan.roots]
    return _digest(*texts)


def symbol_values(network: Network, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Symbol -> its value for inputs of these shapes."""
    values: dict[str, int] = {}
    for array, shape in zip(network.inputs, shapes, strict=False):
        for declared, given in zip(network.sdfg.arrays[array].shape, shape, strict=False):
            if str(declared) in network.sdfg.symbols:
                values[str(declared)] = int(given)
    return values


class Predictor:
    """Predicts programs for a machine, and learns from one that has run."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known_us: dict[str, float] = {}
        self.scales: dict[str, float] = {}
        self.around_us = 0.0

    def learn(self, steps: Sequence[StepFacts], took_us: Sequence[float], call_us: float) -> None:
        """Take over what the steps of a program took.

        Args:
            call_us: of all of it, with what stands around the steps.
        """
        self.around_us = max(call_us - sum(took_us), 0.0)
        pairs = list(zip(steps, took_us, strict=True))
        for kind in dict.fromkeys(step.kind for step in steps):
            ratios = [
                us / modelled_us(self.machine, step) for step, us in pairs if step.kind == kind and us > 0
            ]
            if ratios:
                self.scales[kind] = min(max(median(ratios), _NARROWEST), _WIDEST)
        several: dict[str, list[float]] = {}
        for step, us in pairs:
            several.setdefault(step.key, []).append(us)
        self.known_us |= {key: median(found) for key, found in several.items()}

    def us(self, steps: Sequence[StepFacts]) -> float:
        """Microseconds of a program."""
        return self.around_us + sum(
            self.known_us[step.key]
            if step.key in self.known_us
            else self.scales.get(step.kind, 1.0) * modelled_us(self.machine, step)
            for step in steps
        )


def modelled_us(machine: Machine, step: StepFacts) -> float:
    """Microseconds of a step by its costs alone."""
    start_us, moved_us, *computed_us = shares_us(machine, step)
    return start_us + hypot(moved_us, sum(computed_us))


def shares_us(machine: Machine, step: StepFacts) -> tuple[float, ...]:
    """Microseconds that each kind of work in a step takes by itself, as many for every step of a kind.

    The start, then what is moved from and to memory, then what is computed meanwhile: of a kernel vector
    operations, scalar ones, those that wait for each other, accesses far apart and starts of loops, of others
    products; special functions come last.
    Moving and computing overlap, the less the nearer they are: together they take the root of the sum of
    their squares.
    """
    cached = machine.cached_bytes_per_s
    reach = step.reach or _alone(step.unique_bytes)
    if step.kind != "kernel":
        called_us = {"aten": machine.call_us, "torch": machine.call_us, "onnxruntime": _RUNTIME_US}
        start_us = called_us.get(step.kind, _KERNEL_US)
        moved_s = reach[0] / cached + _moved_s(machine, reach)
        products_s = step.flops / machine.product_flops_per_s
        functions_s = sum(_functions_s(machine, step)) / machine.threads
        return start_us, moved_s * 1e6, products_s * 1e6, functions_s * 1e6
    threads = step.threads(machine.threads)
    moved_s = _moved_s(machine, past_the_caches(reach, step.streamed_bytes))
    moved_s += step.streamed_bytes / machine.streamed_bytes_per_s
    return (
        machine.region_us if step.parallel else _KERNEL_US,
        moved_s * 1e6,
        step.vector_operations * _BYTES / (cached * threads) * 1e6,
        step.scalar_operations * _SCALAR_US / threads,
        step.dependent_operations / machine.additions_per_s / threads * 1e6,
        step.strided_accesses * _STRIDED_US / threads,
        step.loop_starts * _LOOP_US / threads,
        sum(_functions_s(machine, step)) / threads * 1e6,
    )


COMPUTED = 4
"""Kinds of work in a step before those that compute: its start, and memory by how far it is."""


def composition(machine: Machine, step: StepFacts) -> tuple[float, ...]:
    """Of the time that the kinds of work in a step would take one after the other, the share of each.

    As `shares_us` has them, with memory told apart by how far it is and functions by their kinds: what is
    computed stands from `COMPUTED` on.
    """
    start_us, _, *computed_us, _ = shares_us(machine, step)
    reach, threads = step.reach or _alone(step.unique_bytes), float(machine.threads)
    if step.kind == "kernel":
        reach, threads = past_the_caches(reach, step.streamed_bytes), step.threads(machine.threads)
    functions_s = (s / threads for s in _functions_s(machine, step))
    near_s = _moved_s(machine, (*reach[:_FAR], *[0] * (len(reach) - _FAR)))
    streamed_s = step.streamed_bytes / machine.streamed_bytes_per_s
    moved_s = near_s, _moved_s(machine, reach) - near_s, streamed_s
    times = (start_us, *(s * 1e6 for s in moved_s), *computed_us, *(s * 1e6 for s in functions_s))
    whole = sum(times)
    return tuple(us / whole for us in times) if whole else times


def _alone(unique_bytes: int) -> Reach:
    """Of a step of which nobody knows what runs around it: it finds what it has left itself."""
    place = bisect_left(DISTANCES, unique_bytes)
    return tuple(unique_bytes if i == place else 0 for i in range(len(DISTANCES) + 1))


def _moved_s(machine: Machine, reach: Reach) -> float:
    """Seconds that it takes to bring what is in no near cache; distances are the middles of their ranges."""
    return sum(
        count / machine.bytes_per_s(round(distance * 2**0.5))
        for count, distance in zip(reach[1:], DISTANCES, strict=True)
    )


def _functions_s(machine: Machine, step: StepFacts) -> tuple[float, ...]:
    """Seconds that one thread takes for special functions and divisions, kind by kind."""
    return (
        step.exponential_tenths / 10 / machine.exponentials_per_s,
        step.logarithm_tenths / 10 / machine.logarithms_per_s,
        step.error_function_tenths / 10 / machine.error_functions_per_s,
        step.division_tenths / 10 / machine.divisions_per_s,
        step.power_tenths / 10 / machine.powers_per_s,
    )


def _pieces(step: Step, sizes: Mapping[str, int]) -> int:
    match step.action:
        case KernelCall():
            pieces = shared_iterations(step.action.kernel.sdfg)
            if isinstance(pieces, int):
                return pieces
            names = {f"s{i:02d}": sizes[name] for i, name in enumerate(step.action.symbols)}
            return int(pieces.subs({s: names[str(s)] for s in pieces.free_symbols}))
        case ListCall():
            return step.action.elements
        case _:
            return 1


def _renamed(step: Step, network: Network, name: Any) -> str:
    """A step's action as text, with something else in the place of arrays' names."""
    action = step.action
    if isinstance(action, KernelCall):
        text = f"{action.kernel.name} {action.arguments} {action.symbols}"
    elif isinstance(action, ListCall):
        text = f"{action.kernel.name} {action.columns} {action.rows} {action.numbers} {action.written}"
    else:
        text = repr(action)
    arrays = network.sdfg.arrays
    return _WORD.sub(lambda word: name(word[0]) if word[0] in arrays else word[0], text)


def _description(array: str, network: Network) -> str:
    desc = network.sdfg.arrays[array]
    shape, strides = [str(size(s)) for s in desc.shape], [str(size(s)) for s in desc.strides]
    return f"{desc.dtype.to_string()}{shape}{strides}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()

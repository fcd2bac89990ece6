"""The plan of a program: its steps in order, and where every array lives. Pure: an SDFG in, a record out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dace.data import View
from dace.sdfg import nodes
from dace.sdfg.utils import get_view_edge

from daceml.codegen.planning.all_reduce_overlap import apart, early_steps, overlapping
from daceml.codegen.planning.late_steps import late_steps
from daceml.codegen.planning.lifetimes import lives, makes, releases
from daceml.codegen.planning.memory_usage import Usage
from daceml.codegen.planning.peak_memory import lower_peak
from daceml.codegen.planning.step_exchange import exchange_steps
from daceml.codegen.planning.steps import Copy, Location, Step, Storage, handed_over
from daceml.codegen.planning.workspace_offsets import Interval, Layout, plan_offsets
from daceml.errors import ShapeError, UnsupportedProgramError
from daceml.runtime.records.manifest import EXAMPLE_SIZE
from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce
from daceml.sdfg.external import AtenCall, ExternalCall, FallbackCall
from daceml.sdfg.network import LimitCheck
from daceml.sdfg.outline import Kernel, KernelCall, Outliner
from daceml.sdfg.program_order import program_order
from daceml.sdfg.sizes import number_of_all, product, size, size_bytes
from daceml.sdfg.tensor_lists import ListCall

if TYPE_CHECKING:
    import dace

    from daceml.sdfg.network import Network


# Making and releasing an array takes 0.3 us, less than the call of a kernel; below, it is not worth the while
_LARGE_BYTES = 2**10
# DaCe declares map parameters as int
_MOST_ELEMENTS = 2**31 - 1


Resolve = Callable[[nodes.LibraryNode, "Network"], ExternalCall]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a driver is written from.

    Attributes:
        network: interface and descriptors.
        steps: in execution order; the copies to outputs and buffers come last.
        locations: of every array that has memory; views are resolved through `roots`.
        roots: array -> the array whose memory it is (itself, unless it is a view).
        layout: offsets of the workspace arrays.
        weights: array names in the order in which the launcher passes them: weights, constants, packed
            weights.
        makes: step index -> fresh arrays and outputs to be made before it; what no step writes comes at the
            end. A kernel that hands its buffer over makes its result itself.
        releases: step index -> fresh arrays, and inputs that the call may release, whose last reader it is.
    """

    network: Network
    steps: tuple[Step, ...]
    locations: dict[str, Location]
    roots: dict[str, str]
    layout: Layout
    weights: tuple[str, ...]
    makes: dict[int, tuple[str, ...]]
    releases: dict[int, tuple[str, ...]]
    kernels: tuple[Kernel, ...]

    def location(self, array: str) -> Location:
        """Where an array or view lives."""
        return self.locations[self.roots[array]]


def make_plan(
    network: Network,
    external_call: Resolve,
    *,
    given: Collection[str] | None = None,
    outliner: Outliner | None = None,
    sent: Collection[str] = (),
) -> Plan:
    """Order the steps of a lowered network and give every array a place. Does not change the network.

    Args:
        network: lowered: top-level maps, external calls, views and copies only.
        external_call: the call behind a library node.
        given: not None for a program of a training step, where memory counts first: arrays exist from their
            first writer to their last reader only, and not in a workspace that stays from call to call. It
            names the inputs that only the call holds, so that they are released as early.
        outliner: one that may have seen scopes of the network.
        sent: arrays that will be sent to other ranks, besides what nodes of the network send: they are
            computed early.
    Raises:
        UnsupportedProgramError: a node that is none of these.
    """
    sdfg, state = network.sdfg, network.state
    _check_sizes(sdfg)
    roots = _roots(sdfg, state)
    computing, exchanging = apart(_steps(network, outliner or Outliner(), external_call))
    computing = _late(computing, network, roots, given)
    early = {roots[a] for a in (*sent, *(a for s in exchanging for a in s.reads))}
    if early:
        kept = {roots[a] for a in (*network.outputs, *network.mutations) if a in roots}
        computing = early_steps(computing, early, kept - early, root=roots.__getitem__)
    steps = overlapping(computing, exchanging, root=roots.__getitem__)
    kernels = _kernels(steps)
    if network.device != "cpu":
        _check_device(network, steps, kernels)
    steps = _with_checks(steps, network, roots)
    used = {roots[a] for s in steps for a in (*s.reads, *s.writes)}
    used |= {roots[a] for a in (*network.outputs, *network.mutations) if a in roots}
    weights = tuple(
        a
        for a in (*network.weights, *network.constants, *network.prepared)
        if a in used or a in network.mutations.values()
    )
    locations = _fixed_locations(network, weights)
    steps += _closing_copies(network, roots, locations)

    lived = lives(steps, roots)
    fresh = dict.fromkeys(roots[a] for s in steps for a in handed_over(s))
    if given is not None:
        fresh |= dict.fromkeys(a for a in lived if _is_large(sdfg.arrays[a]))
    for name in fresh:
        if name not in locations:
            count = sum(loc.storage is Storage.FRESH for loc in locations.values())
            locations[name] = Location(storage=Storage.FRESH, index=count)
    scratch = [a for a in lived if a not in locations]
    intervals = [
        Interval(name=a, size_bytes=size_bytes(sdfg.arrays[a]), first=lived[a][0], last=lived[a][1])
        for a in scratch
    ]
    locations |= {a: Location(storage=Storage.WORKSPACE) for a in scratch}
    return Plan(
        network=network,
        steps=tuple(steps),
        locations=locations,
        roots=roots,
        layout=plan_offsets(intervals),
        weights=weights,
        makes=makes(steps, roots, locations, lived),
        releases=releases(locations, lived, inputs=given is not None),
        kernels=kernels,
    )


def _check_sizes(sdfg: dace.SDFG) -> None:
    for name, desc in sdfg.arrays.items():
        elements = product(size(s) for s in desc.shape)
        if isinstance(elements, int) and elements > _MOST_ELEMENTS:
            raise ShapeError(
                f"tensor {name} has {elements} elements",
                why=f"generated loops count with 32 bits: at most {_MOST_ELEMENTS}",
                fix="use a smaller batch, or split the tensor",
            )


def _check_device(network: Network, steps: Sequence[Step], kernels: Iterable[Kernel]) -> None:
    """Refuse what would run on the processor and touch a device's memory."""
    if network.weight_check is not None or network.limits:
        raise UnsupportedProgramError(
            "a program for a device would look at weights or activations on the processor",
            why="the recipe has a pass for the processor: watch_weights or fuse_activations",
            fix="write recipe=device_recipe() + Recipe(my_pass), both of daceml.transformations",
        )
    elsewhere = [s.label for s in steps if isinstance(s.action, FallbackCall | ListCall)]
    if elsewhere or not all(kernel.on_device for kernel in kernels):
        raise UnsupportedProgramError(
            "a part of the program would run on the processor, and its tensors are on a device",
            where=", ".join(elsewhere),
            why="loops over lists of tensors and operators of ONNX Runtime do not run there"
            if elsewhere
            else "the recipe does not end with schedule_on_device",
            fix="keep such parts out of what is compiled"
            if elsewhere
            else "write recipe=device_recipe() + Recipe(my_pass), both of daceml.transformations",
        )


def _roots(sdfg: dace.SDFG, state: dace.SDFGState) -> dict[str, str]:
    viewed: dict[str, str] = {}
    for node in state.data_nodes():
        if isinstance(sdfg.arrays[node.data], View) and node.data not in viewed:
            edge = get_view_edge(state, node)
            viewed[node.data] = edge.src.data if edge.dst is node else edge.dst.data

    def root(name: str) -> str:
        while name in viewed:
            name = viewed[name]
        return name

    return {name: root(name) for name in sdfg.arrays}


def _steps(network: Network, outliner: Outliner, external_call: Resolve) -> list[Step]:
    sdfg, state = network.sdfg, network.state
    scopes = state.scope_dict()
    steps: list[Step] = []
    calls = {
        node: external_call(node, network) for node in state.nodes() if isinstance(node, nodes.LibraryNode)
    }
    drawing = [n for n, c in calls.items() if isinstance(c.action, AtenCall) and c.action.draws]
    draws = sorted(drawing, key=lambda n: (calls[n].position, state.node_id(n)))
    for node in program_order(state, draws):
        if scopes[node] is not None or isinstance(node, nodes.MapExit):
            continue
        match node:
            case nodes.MapEntry():
                call = outliner.outline(sdfg, state, node)
                steps.append(Step(action=call, reads=call.reads, writes=call.writes, label=call.label))
            case nodes.LibraryNode():
                steps.append(_external_step(calls[node]))
            case nodes.AccessNode():
                steps += _copies_into(node, sdfg, state)
            case _:
                raise UnsupportedProgramError(
                    f"a program cannot run a {type(node).__name__} outside a map",
                    where=str(node),
                    why="top-level nodes are maps, external calls, views and copies",
                    fix="wrap tasklets in a map, expand library nodes and inline nested SDFGs",
                )
    return steps


def _kernels(steps: Iterable[Step]) -> tuple[Kernel, ...]:
    called = (s.action.kernel for s in steps if isinstance(s.action, KernelCall | ListCall))
    return tuple({kernel.text: kernel for kernel in called}.values())


def _late(
    steps: list[Step], network: Network, roots: dict[str, str], given: Collection[str] | None
) -> list[Step]:
    """Steps at which less memory is in use; as they were where sizes are not known."""
    descs = network.sdfg.arrays
    named = (*network.inputs, *network.outputs, *network.weights, *network.constants, *network.prepared)
    lasting = {roots[a] for a in (*named, *network.mutations) if a in roots}
    touched = {roots[a] for s in steps for a in (*s.reads, *s.writes)}
    bytes_of = {a: amount for a in touched if isinstance(amount := size_bytes(descs[a]), int)}
    if len(bytes_of) < len(touched):
        return steps

    def draws(step: Step) -> bool:
        return isinstance(step.action, AtenCall) and step.action.draws

    def fixed(step: Step) -> bool:
        return isinstance(step.action, Copy | FallbackCall)

    def temporary_bytes(array: str) -> int:
        return 0 if array in lasting else bytes_of[array]

    late = late_steps(
        steps, root=roots.__getitem__, temporary_bytes=temporary_bytes, fixed=fixed, draws=draws
    )
    if given is None:
        return late
    outputs = frozenset(network.outputs)
    usage = Usage(
        late,
        root=roots.__getitem__,
        made_bytes=lambda array: bytes_of[array] if array in outputs else temporary_bytes(array),
        freed_bytes=lambda array: bytes_of[array] if array in given else temporary_bytes(array),
        fixed=lambda step: fixed(step) or draws(step),
    )
    return lower_peak(exchange_steps(usage), usage)


def _with_checks(steps: list[Step], network: Network, roots: dict[str, str]) -> list[Step]:
    """Each check right after what writes its array, or first where that comes from outside."""
    after: dict[int, list[Step]] = {}
    for check in (*network.checks, *network.limits):
        writers = [i for i, s in enumerate(steps) if roots[check.array] in {roots[a] for a in s.writes}]
        reads, what = (check.array,), "positions"
        if isinstance(check, LimitCheck):
            reads, what = (check.array, check.limit), "magnitudes"
        step = Step(action=check, reads=reads, writes=(), label=f"check {what} in {check.array}")
        after.setdefault(writers[-1] if writers else -1, []).append(step)
    checked = [*_weight_check(network), *after.get(-1, ())]
    for i, step in enumerate(steps):
        checked += [step, *after.get(i, ())]
    return checked


def _weight_check(network: Network) -> list[Step]:
    """In front of everything else, since a program that finds other weights is run again."""
    check = network.weight_check
    if check is None:
        return []
    reads = (*check.arrays, check.fingerprint)
    return [Step(action=check, reads=reads, writes=(), label=f"check {len(check.arrays)} weights")]


def _external_step(call: ExternalCall) -> Step:
    action = call.action
    match action:
        case AtenCall():
            reads, writes = action.reads(), (action.writes, *action.more)
        case ListCall() | BeginAllReduce() | WaitAllReduce():
            reads, writes = action.reads, action.writes
        case FallbackCall():
            reads, writes = action.inputs, action.outputs
    return Step(
        action=action,
        reads=reads,
        writes=writes,
        label=call.label,
        module_path=call.module_path,
        source=call.source,
    )


def _copies_into(node: nodes.AccessNode, sdfg: dace.SDFG, state: dace.SDFGState) -> list[Step]:
    desc = sdfg.arrays[node.data]
    copies: list[Step] = []
    for edge in state.in_edges(node):
        if not isinstance(edge.src, nodes.AccessNode) or edge.data.is_empty():
            continue
        views_source = isinstance(sdfg.arrays[edge.src.data], View) and edge.src_conn == "views"
        if isinstance(desc, View) or views_source:
            continue
        copies.append(
            Step(
                action=Copy(source=edge.src.data, target=node.data),
                reads=(edge.src.data,),
                writes=(node.data,),
                label=f"copy {edge.src.data} to {node.data}",
            )
        )
    return copies


def _fixed_locations(network: Network, weights: tuple[str, ...]) -> dict[str, Location]:
    locations = {a: Location(storage=Storage.INPUT, index=i) for i, a in enumerate(network.inputs)}
    locations |= {a: Location(storage=Storage.WEIGHT, index=i) for i, a in enumerate(weights)}
    for i, array in enumerate(network.outputs):
        locations.setdefault(array, Location(storage=Storage.OUTPUT, index=i))
    return locations


def _closing_copies(network: Network, roots: dict[str, str], locations: dict[str, Location]) -> list[Step]:
    """Outputs that are inputs, weights, views or repeated; then the buffers, which all have read by then."""
    copies: list[Step] = []
    for i, array in enumerate(network.outputs):
        target = Location(storage=Storage.OUTPUT, index=i)
        if locations[array] != target or roots[array] != array:
            copies.append(
                Step(
                    action=Copy(source=array, target=target),
                    reads=(array,),
                    writes=(),
                    label=f"copy {array} to output {i}",
                )
            )
    elsewhere = {a: b for a, b in network.mutations.items() if a != b}  # others are written in place
    for array, buffer in elsewhere.items():
        copies.append(
            Step(
                action=Copy(source=array, target=locations[buffer]),
                reads=(array,),
                writes=(),
                label=f"update {network.weights[buffer]}",
            )
        )
    return copies


def _is_large(desc: dace.data.Data) -> bool:
    return number_of_all(size_bytes(desc), EXAMPLE_SIZE) >= _LARGE_BYTES

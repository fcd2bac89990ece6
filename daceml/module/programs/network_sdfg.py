"""A network as the SDFG that DaCe nests in a program: plain arguments, loops, results under `__return`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import dace
from dace import data

from daceml.errors import NoImplementationError, UnsupportedProgramError
from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.builder import Builder, Computation, parameters
from daceml.sdfg.scalar import apply, read
from daceml.sdfg.scalar_environment import declare_scalar_functions
from daceml.sdfg.scalar_rewrite import as_index

if TYPE_CHECKING:
    from daceml.sdfg.network import Network

_NEXT = "::next"  # ends the name of a result that is the new value of an input
_LARGEST_CONSTANT = 1 << 16  # elements; DaCe writes constants into the C++ code


def network_sdfg(
    network: Network, *, arguments: Sequence[str], weights: Mapping[str, str], scalars: Sequence[str] = ()
) -> dace.SDFG:
    """Lower a network to loops, and give it the interface of a DaCe program. Mutates the network.

    Args:
        network: of ONNX nodes.
        arguments: names for the network's inputs, in their order.
        weights: key in the module's state -> name of its array in the program.
        scalars: those of the arguments that are DaCe scalars.
    Returns:
        the SDFG. Results are `__return`, or `__return_0`, `__return_1` and so on, each an array of its own;
        what forward assigns to a buffer or an input is written there at the end.
    Raises:
        NoImplementationError: an operator without native loops.
        UnsupportedProgramError: a constant that is too large to be written into a program.
    """
    sdfg: dace.SDFG = network.sdfg
    _end_gradients(network)
    _end_padding_gradients(network)
    _lower(network)
    results = [a for a in network.outputs if not _is_next(network, a)]
    written = [a for a in network.outputs if _is_next(network, a)]
    by_name = {network.signature.get(a, a): a for a in network.inputs}
    targets = {a: by_name[network.signature[a].removesuffix(_NEXT)] for a in written}
    targets |= {new: old for new, old in network.mutations.items() if new != old}
    returned = ["__return"] if len(results) == 1 else [f"__return_{i}" for i in range(len(results))]
    _copy_behind(sdfg, network.state, results, returned, targets)
    _declare_constants(network)
    own = dict(zip(network.inputs, arguments, strict=True))
    _rename(sdfg, own | {a: weights[key] for a, key in network.weights.items()})
    for name in scalars:
        sdfg.arrays[name] = data.Scalar(sdfg.arrays[name].dtype, transient=False)
    for state in sdfg.states():
        declare_scalar_functions(state.nodes())
    sdfg.arg_names = [name for name in arguments if name in sdfg.arrays]
    return sdfg


def _is_next(network: Network, array: str) -> bool:
    return network.signature.get(array, array).endswith(_NEXT)


def _end_gradients(network: Network) -> None:
    """Where a gradient ends, an operation does that has no derivative."""
    builder = Builder(network.sdfg, network.state)
    for node in [n for n in network.state.nodes() if getattr(n, "op_type", None) == "StopGradient"]:
        (given,), (made,) = network.state.in_edges(node), network.state.out_edges(node)
        source, target = str(given.data.data), str(made.data.data)
        desc = network.sdfg.arrays[source]
        shape = tuple(map(as_index, desc.shape))
        places = parameters(len(shape))
        network.state.remove_node(node)
        value = apply("without_gradient", read(source, desc.dtype, places, shape))
        builder.emit(
            Computation(
                label=f"stop_{source}", target=target, index=places, params=places, extents=shape, value=value
            )
        )


def _end_padding_gradients(network: Network) -> None:
    """Rows of a table that are padding get no gradient: what was read of them ends it."""
    builder = Builder(network.sdfg, network.state)
    for node in [n for n in network.state.nodes() if isinstance(n, ONNXNode)]:
        row = cast("int | None", node.padding_row)
        if row is None:
            continue
        (made,) = network.state.out_edges(node)
        (indices,) = network.state.in_edges_by_connector(node, "indices")
        target, index = str(made.data.data), str(indices.data.data)
        desc: Any = network.sdfg.arrays[target]
        raw, _ = network.sdfg.add_transient(
            f"{target}_with_padding", desc.shape, desc.dtype, find_new_name=True
        )
        memlet = network.sdfg.make_array_memlet(raw)
        network.state.add_edge(node, made.src_conn, builder.node_of(raw), None, memlet)
        network.state.remove_edge(made)
        shape = tuple(map(as_index, desc.shape))
        places = parameters(len(shape))
        positions: Any = network.sdfg.arrays[index]
        which = (0,) if index in network.scalars else places[: len(positions.shape)]
        value = read(raw, desc.dtype, places, shape)
        is_padding = apply("eq", read(index, positions.dtype, which, tuple(positions.shape)), row)
        value = apply("where", is_padding, apply("without_gradient", value), value)
        builder.emit(
            Computation(
                label=f"padding_{target}", target=target, index=places, params=places, extents=shape,
                value=value,
            )
        )  # fmt: skip


def _lower(network: Network) -> None:
    try:
        lower(network, allowed=("alias", "native"))
    except NoImplementationError as error:
        raise NoImplementationError(
            "a module cannot be part of a DaCe program",
            where=error.where,
            why=f"{error.what}\n{error.why}",
            fix="call the module from PyTorch, where vendor kernels and ONNX Runtime take over; "
            "dropout is left out after module.eval()",
        ) from error
    left = [n for n in network.state.nodes() if isinstance(n, ONNXNode)]
    assert not left, f"native implementations leave no node: {left}"


def _copy_behind(
    sdfg: dace.SDFG,
    state: dace.SDFGState,
    results: Sequence[str],
    returned: Sequence[str],
    targets: Mapping[str, str],
) -> None:
    """Results, and new values of inputs and buffers, in states of their own behind the network."""
    copies: list[tuple[str, str]] = []
    for source, name in zip(results, returned, strict=True):
        desc: Any = sdfg.arrays[source]
        alone = results.count(source) == 1 and not {source}.intersection(targets, targets.values())
        if alone and _is_written(state, source) and not desc.transient and type(desc) is data.Array:
            _rename(sdfg, {source: name})
            continue
        sdfg.add_array(name, desc.shape, desc.dtype)
        copies.append((source, name))
    copies += targets.items()
    for number, (source, target) in enumerate(copies):
        behind = sdfg.add_state_after(state, f"results_{number}")
        Builder(sdfg, behind).emit_copy(f"copy_{target}", source, target)
    for name in results:
        if name in sdfg.arrays:
            sdfg.arrays[name].transient = _is_written(state, name)
    for name in targets:
        sdfg.arrays[name].transient = True


def _is_written(state: dace.SDFGState, array: str) -> bool:
    return any(state.in_degree(n) for n in state.data_nodes() if n.data == array)


def _declare_constants(network: Network) -> None:
    """Constants that the loops read become DaCe's; the others go."""
    sdfg: dace.SDFG = network.sdfg
    read_here = {n.data for state in sdfg.states() for n in state.data_nodes()}
    for name, value in network.constants.items():
        if name not in sdfg.arrays:
            continue
        if name not in read_here:
            sdfg.remove_data(name, validate=False)
            continue
        if value.size > _LARGEST_CONSTANT:
            raise UnsupportedProgramError(
                "a module with a large constant cannot be part of a DaCe program",
                where=f"{network.signature.get(name, name)}: {value.dtype} {list(value.shape)}",
                why=f"DaCe writes constants into the C++ code, and this one has {value.size} elements",
                fix="keep it in a buffer of the module: self.register_buffer(name, tensor)",
            )
        desc: Any = sdfg.arrays[name]
        desc.transient = True
        sdfg.add_constant(name, value.reshape(desc.shape), desc)


def _rename(sdfg: dace.SDFG, names: Mapping[str, str]) -> None:
    """Rename arrays; others that have the new names get new ones. Mutates the SDFG."""
    first: dict[str, str] = {}
    for name in names.values():
        if name in sdfg.arrays and name not in names:
            first[name] = _free_name(sdfg, name, {*names.values(), *first.values()})
    if first:
        sdfg.replace_dict(first)
    changed = {old: new for old, new in names.items() if old != new and old in sdfg.arrays}
    apart = {old: _free_name(sdfg, f"renamed_{old}", set(names.values())) for old in changed}
    if changed:
        sdfg.replace_dict(apart)
        sdfg.replace_dict({apart[old]: new for old, new in changed.items()})


def _free_name(sdfg: dace.SDFG, name: str, taken: set[str]) -> str:
    number = 0
    while f"{name}_{number}" in sdfg.arrays or f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"

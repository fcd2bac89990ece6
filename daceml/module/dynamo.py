"""`torch.compile(module, backend="daceml")`: one Dynamo graph is one compiled module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from daceml.compiler.options import module_options
from daceml.errors import ConfigurationError
from daceml.module.module import view_of
from daceml.module.partial.graph_session import graph_function


def backend(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo has captured, and its backward pass where gradients are wanted.

    The graph is differentiated here, as any module. AOTAutograd would differentiate it by torch's formulas
    instead, whose operators (`convolution_backward` and many more) have no counterpart in ONNX.

    Args:
        graph: parameters and buffers are among its inputs.
        example_inputs: fake tensors, and symbolic integers for sizes that change.
        options: `auto_optimize` and `fullgraph`, as for `daceml.compile`.
    Returns:
        a function of the graph's inputs. Operators that no program can express run eagerly, between programs,
        unless `fullgraph` is set.
    Raises:
        ConfigurationError: a mode, or an option that a graph cannot have.
    """
    given = dict(options or {})
    if mode is not None or given.keys() - {"auto_optimize", "fullgraph"}:
        raise ConfigurationError(
            "the daceml backend of torch.compile has the options auto_optimize and fullgraph, and no modes",
            why=f"it was given {'mode ' + repr(mode) if mode is not None else ', '.join(given)}",
            fix='write torch.compile(module, backend="daceml"), with dynamic=True where sizes change',
        )
    chosen = module_options(given)
    return graph_function(graph, view_of, chosen, name="graph", whole=bool(chosen["fullgraph"]))

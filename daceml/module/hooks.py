"""Hooks between the stages of a compilation: the user's own transformations, in order, by name.

Source: Rausch et al., DaCeML (ICS '22), listing B.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from daceml.errors import ConfigurationError

if TYPE_CHECKING:
    from daceml.sdfg.network import Network

log = logging.getLogger(__name__)

Stage = Literal["post_onnx", "post_autodiff"]
Hook = Callable[..., Any]


@dataclass
class CompilationHooks:
    """The hooks of one module.

    Attributes:
        hooks: for each stage (name, function), in the order in which they run.
    """

    hooks: dict[Stage, list[tuple[str, Hook]]] = field(
        default_factory=lambda: {"post_onnx": [], "post_autodiff": []}
    )

    def __bool__(self) -> bool:
        return any(self.hooks.values())

    def copy(self) -> CompilationHooks:
        """The same hooks, for another module."""
        return CompilationHooks({stage: list(hooks) for stage, hooks in self.hooks.items()})

    def add(self, stage: Stage, name: str, hook: Hook, *, first: bool) -> None:
        """Put a hook before or behind the others.

        Raises:
            ConfigurationError: no name, a name that is taken, or something that cannot be called.
        """
        if not isinstance(name, str) or not callable(hook):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"a {stage} hook takes a name and a function",
                why=f"it got a {type(name).__name__} and a {type(hook).__name__}",
                fix=f'write for example module.append_{stage}_hook("fuse", function)',
            )
        known = [other for other, _ in self.hooks[stage]]
        if name in known:
            raise ConfigurationError(
                f"there is already a {stage} hook called {name!r}",
                why=f"hooks run in this order: {', '.join(known)}",
                fix="give it another name",
            )
        self.hooks[stage].insert(0 if first else len(known), (name, hook))

    def run_post_onnx(self, module: Any, network: Network) -> None:
        """Call every hook with the module, whose `sdfg` is the network's meanwhile.

        A rewrite or a recipe takes the network itself.

        Raises:
            Exception: what a hook raises, with a note that says which one it was.
        """
        for name, hook in self.hooks["post_onnx"]:
            with _named("post_onnx", name):
                hook(network if getattr(hook, "takes_network", False) else module)
        check_network(network, "post_onnx")

    def run_post_autodiff(self, network: Network, backward: Network | None) -> None:
        """Call every hook with the SDFGs of the forward and the backward pass; raises what they raise.

        A rewrite or a recipe takes one network after the other.

        Args:
            backward: None where no gradients are wanted; hooks then see an SDFG without states.
        """
        import dace

        behind = dace.SDFG(f"{network.sdfg.name}_backward") if backward is None else backward.sdfg
        for name, hook in self.hooks["post_autodiff"]:
            with _named("post_autodiff", name):
                if getattr(hook, "takes_network", False):
                    for passed in filter(None, (network, backward)):
                        hook(passed)
                else:
                    hook(network.sdfg, behind)
        for checked in (network, *(() if backward is None else (backward,))):
            check_network(checked, "post_autodiff")


@contextmanager
def _named(stage: Stage, name: str) -> Generator[None]:
    log.info("%s hook %s", stage, name)
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by the {stage} hook {name!r}, while daceml compiled the module")
        raise


def check_network(network: Network, stage: str) -> None:
    """Refuse an SDFG whose interface a hook has broken.

    Raises:
        ConfigurationError: an array of the interface is gone, or the SDFG is not valid.
    """
    from dace.sdfg.validation import InvalidSDFGError

    needed = [*network.inputs, *network.outputs, *network.weights, *network.constants, *network.mutations]
    missing = [name for name in needed if name not in network.sdfg.arrays]
    fix = "a hook may change what is between inputs and outputs; keep the arrays of the interface"
    if missing:
        raise ConfigurationError(
            f"a {stage} hook removed {', '.join(missing[:3])}",
            why="the network is called with these",
            fix=fix,
        )
    try:
        network.sdfg.validate()
    except InvalidSDFGError as error:
        raise ConfigurationError(
            f"the SDFG is not valid after the {stage} hooks", why=str(error), fix=fix
        ) from error

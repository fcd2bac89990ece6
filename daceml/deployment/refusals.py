"""What cannot leave this process: effects that a library would not have, and steps that only run in Python.

A library computes results and nothing else. Whatever else a call of the module does would vanish without a
word, so it is refused with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.errors import DeploymentError
from daceml.frontend.capture.object_arguments import has_objects, kinds_of_objects

if TYPE_CHECKING:
    from torch import nn
    from torch.utils import _pytree as pytree

    from daceml.codegen.planning.plan import Plan
    from daceml.frontend.capture.capture import Capture
    from daceml.module.session import Session
    from daceml.runtime.records.manifest import Manifest

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")  # that nn.Module runs around forward
# Of a compiled module: what they decide is decided anew for a library, and export has no argument for it
_DECIDING = ("auto_optimize", "recipe", "prefer_native", "verify", "dynamic_shapes")


def refuse_module(model: nn.Module) -> None:
    """A state of the module that its library would not have: training mode, hooks around its calls."""
    from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]

    kind = type(model).__name__
    if model.training:
        raise DeploymentError(
            f"{kind} is in training mode",
            why="what is exported does not draw numbers and changes no buffer",
            fix="call model.eval() before",
        )
    hooks = [hook for hooks in _HOOKS for hook in vars(model)[hooks].values()]
    if hooks:
        names = ", ".join(getattr(hook, "__name__", type(hook).__name__) for hook in hooks)
        raise DeploymentError(
            f"{kind} has hooks around its calls: {names}",
            why="only forward is compiled, and a library would run without them",
            fix="do their work in forward, or remove them; weight norm and the like: "
            "torch.nn.utils.remove_weight_norm(model), or export nn.Sequential(model).eval()",
        )
    if _has_any_global_hook():
        raise DeploymentError(
            "torch has hooks for all modules",
            why="a library would run without them",
            fix="remove them while the model is exported",
        )


def refuse_compiled(session: Session, *, dynamic: bool) -> None:
    """What was asked of a compiled module and a library would be made without."""
    from daceml.compiler.options import module_options

    usual, given = module_options({}), session.options
    dropped = [name for name in _DECIDING if given[name] != usual[name]]
    if dropped:
        raise DeploymentError(
            f"the compiled {type(session.eager).__name__} has options that a library cannot have: "
            f"{', '.join(dropped)}",
            why="a library is made by passes of its own",
            fix="export the module that was compiled (compiled.session.eager)",
        )
    if given["dynamic"] and not dynamic:
        raise DeploymentError(
            f"{type(session.eager).__name__} was compiled with dynamic=True and is exported for fixed sizes",
            why="sizes of a library are those of the call unless export is told otherwise",
            fix="pass dynamic=True to export, or export compiled.session.eager",
        )
    if session.hooks:
        names = ", ".join(name for hooks in session.hooks.hooks.values() for name, _ in hooks)
        raise DeploymentError(
            f"the compiled {type(session.eager).__name__} has hooks of its compilation: {names}",
            why="a library is made without them",
            fix="export the module that was compiled (compiled.session.eager)",
        )


def refuse_assignments(captured: Capture) -> None:
    """Attributes that forward assigns: their values would come out beside the results, or be lost."""
    if not captured.assigned:
        return
    names = ", ".join(f"{type(one.owner).__name__}.{one.name}" for one in captured.assigned)
    raise DeploymentError(
        f"forward assigns {names}",
        why="a library has results and no attributes",
        fix="return the value, or do not assign it while the model is exported",
    )


def refuse_objects(name: str, captured: Capture, call: pytree.TreeSpec) -> None:
    """Objects of Python, such as a cache of keys and values, and what forward changes in its arguments."""
    kinds = dict.fromkeys((*captured.classes, *kinds_of_objects(call)))
    if kinds or has_objects(captured.program.call_spec.out_spec):
        names = ", ".join(kind.__name__ for kind in kinds) or "constants"
        why = f"a library takes and gives tensors and numbers, in tuples, lists and dicts, and no {names}"
    elif captured.changes:
        why = "forward changes a list or dict among its arguments, and a library has results only"
    else:
        return
    raise DeploymentError(
        f"{name} cannot be called so without Python",
        why=why,
        fix="export a module that takes the tensors of such an object, and returns the new ones",
    )


def refuse_read_values(captured: Capture) -> None:
    """Values of arguments that are constants of the program: a library takes any."""
    names = [read.name for read in captured.reads if isinstance(read.source, int)]
    if not names:
        return
    raise DeploymentError(
        f"forward reads the value of {', '.join(dict.fromkeys(names))}",
        why="it configures the program, and a library would be wrong for another value",
        fix="pass a number of Python, or keep the tensor in a buffer",
    )


def refuse_changes(manifest: Manifest) -> None:
    """Tensors of the caller or of the module that a call changes."""
    marked = [record.name.partition("::next") for record in manifest.outputs]
    changed = dict.fromkeys([*manifest.mutated, *(name for name, mark, _ in marked if mark)])
    if not changed:
        return
    inputs = {record.name for record in manifest.inputs}
    ours = [name for name in changed if name not in inputs]
    raise DeploymentError(
        f"a call changes {', '.join(changed)}",
        why="weights of an exported model stay as they are" if ours else "inputs of a library are only read",
        fix="call model.eval(), or leave the buffers unchanged in forward"
        if ours
        else "change a copy (x = x.clone()), and return it where the caller needs it",
    )


def refuse_steps(plan: Plan, *, libtorch: bool) -> None:
    """Steps that run in this process alone."""
    from daceml.sdfg.external import TORCH_OPERATOR, AtenCall, FallbackCall

    for step in plan.steps:
        where = step.module_path or step.label
        if isinstance(step.action, FallbackCall):
            raise DeploymentError(
                f"{step.label} runs in ONNX Runtime", where=where,
                why="a library has no ONNX Runtime in it", fix="write it with operators that daceml has",
            )  # fmt: skip
        if isinstance(step.action, AtenCall):
            if step.action.function == TORCH_OPERATOR:
                raise DeploymentError(
                    f"{step.label} is called by name through torch's dispatcher in Python", where=where,
                    why="a library has no Python in it", fix="write it with operators that daceml has",
                )  # fmt: skip
            if step.action.draws:
                raise DeploymentError(
                    f"{step.label} draws random numbers", where=where,
                    why="torch's generator is in Python's process", fix="draw them outside, and pass them in",
                )  # fmt: skip
            if not libtorch:
                raise DeploymentError(
                    f"{step.label} is computed by torch ({step.action.function})", where=where,
                    why="daceml has no loops of its own for it",
                    fix="export with libtorch=True (--libtorch), and link to torch's libraries",
                )  # fmt: skip

"""`daceml.export`: a model's forward pass as a library with a C header, which PyTorch loads, too."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daceml.deployment.c_api import example, header, implementation
from daceml.deployment.folder import explained, filled
from daceml.deployment.interface import Tensor, interface_text
from daceml.deployment.manifest import ModelManifest, file_sha256, is_name
from daceml.deployment.refusals import (
    refuse_assignments,
    refuse_changes,
    refuse_compiled,
    refuse_module,
    refuse_objects,
    refuse_read_values,
    refuse_steps,
)
from daceml.deployment.size_conditions import size_check, size_conditions
from daceml.deployment.weights_file import write_weights
from daceml.errors import DeploymentError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils import _pytree as pytree

    from daceml.codegen.planning.plan import Plan
    from daceml.compiler.program_builder import Making
    from daceml.frontend.capture.sizes.dynamic_shapes import SizeGuard
    from daceml.runtime.records.manifest import TensorRecord
    from daceml.runtime.stored_program import StoredProgram

_CPP = Path(__file__).with_name("cpp")
_FUNCTIONS = ("load", "run", "output_sizes", "interface", "free")
# Products and convolutions as loops of our own, instead of calls of torch's
_OWN_LOOPS = ("products in loops", "convolutions in loops")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written.

    Attributes:
        sha256: of the manifest, which has the hashes of all other files: give it to `daceml.load`.
    """

    folder: Path
    manifest: ModelManifest
    sha256: str

    def __str__(self) -> str:
        m = self.manifest
        needs = "torch's libraries" if m.libtorch else "no library of Python or torch: products are loops"
        files = ", ".join(m.files)
        return (
            f"{m.model}: {len(m.inputs)} inputs, {len(m.outputs)} results; needs {needs}\n"
            f"{self.folder}: {files}, manifest.json\nSHA-256 of the manifest: {self.sha256}"
        )


def export(
    model: nn.Module,
    *inputs: Any,
    to: str | Path,
    name: str = "model",
    libtorch: bool = False,
    dynamic: bool = False,
    **named: Any,
) -> Exported:
    """Write the forward pass of a model, in evaluation mode, with its weights as they are.

    The folder has a shared library with a C header and a C++ program as an example, `weights.bin`, and
    `manifest.json` with the hash of each file. C and C++ programs run it without Python; `daceml.load` makes
    a module of it.

    Args:
        inputs, named: of a call, on the CPU: their shapes and types are those of the library.
        to: a folder that is not there yet, or is empty.
        name: of the library, and what its functions begin with.
        libtorch: let torch's kernels run where they are faster; programs then link to torch's libraries.
        dynamic: sizes of inputs may differ from call to call.
    Raises:
        DeploymentError: something that only runs in Python, an effect besides results, or a folder that has
            something in it or cannot be written.
        SignatureError: arguments that forward does not take.
        ExportError, NoImplementationError, BuildError: the model cannot be compiled.
    """
    from torch import nn

    from daceml.frontend.capture.redirected_forward import check_call
    from daceml.module.module import DaceModule

    if isinstance(model, DaceModule) and hasattr(model, "_session"):
        refuse_compiled(model.session, dynamic=dynamic)
        model = model.session.eager
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeploymentError(
            f"a {type(model).__name__} cannot be exported", fix="give an nn.Module, and the inputs of a call"
        )
    if not is_name(name):
        raise DeploymentError(
            f"name={name!r}", why="functions of C begin with it", fix="take letters, digits and underscores"
        )
    refuse_module(model)
    check_call(model, inputs, named)
    folder = Path(to).expanduser()
    with filled(folder) as aside:
        source = _Source.of(model, inputs, named, libtorch=libtorch, dynamic=dynamic)
        with explained(folder):
            manifest = source.write(aside, name)
            sha256 = manifest.save(aside)
    return Exported(folder=folder, manifest=manifest, sha256=sha256)


@dataclass(kw_only=True)
class _Source:
    """A compiled forward pass, and what it is made of."""

    model: str
    making: Making
    plan: Plan
    stored: StoredProgram
    weights: list[torch.Tensor]
    call: pytree.TreeSpec
    leaves: list[Any]  # of the call
    sizes: SizeGuard | None

    @classmethod
    def of(
        cls,
        model: nn.Module,
        inputs: tuple[Any, ...],
        named: dict[str, Any],
        *,
        libtorch: bool,
        dynamic: bool,
    ) -> _Source:
        import torch

        from daceml.codegen.planning.plan import make_plan
        from daceml.compiler.call import making_of_call
        from daceml.compiler.guards import call_key, named_key
        from daceml.frontend.capture.arguments import Arguments, flatten
        from daceml.frontend.capture.exportable import RunsEagerlyError
        from daceml.garbage_collection import without_collection
        from daceml.module.module import DaceModule, compile_module
        from daceml.onnx_ops.external import external_call
        from daceml.transformations.standard import standard_recipe
        from daceml.tuning.variant_recipes import varied_recipe

        recipe = standard_recipe().without("pack_weights") if libtorch else varied_recipe(_OWN_LOOPS)
        compiled = compile_module(model, backward=False, recipe=recipe, dynamic=dynamic)
        assert isinstance(compiled, DaceModule)
        arguments = Arguments(inputs, named)
        leaves, call = flatten(inputs, named)
        with torch.no_grad(), without_collection():
            key = named_key(call_key(arguments.leaves, None))
            try:
                making, state, captured = making_of_call(compiled.session.request, arguments, key.modes)
            except RunsEagerlyError as error:
                raise DeploymentError(
                    f"{type(model).__name__} cannot run without Python",
                    why=str(error),
                    fix="leave that out of forward, or export a submodule without it",
                ) from error
            refuse_assignments(captured)
            refuse_objects(type(model).__name__, captured, call)
            refuse_read_values(captured)
            if making.target != "cpu":
                raise DeploymentError(
                    f"{type(model).__name__} lies on {making.device}",
                    why="libraries are for processors",
                    fix="move the model and the inputs to the CPU",
                )
            # weights stay as they are: what can be made of them is made now
            making = replace(making, freeze=True)
            stored, plan = making.stored()[0], None
            if any(record.function == "limit" for record in stored.manifest.prepared):
                # such a program gives up for some inputs, and nobody could take over
                making = replace(making, freeze=False, live=True, known_key="", made=[])
                stored = making.stored()[0]
            plan = make_plan(making.optimised()[0].network, external_call, given=None)
            refuse_steps(plan, libtorch=libtorch)
            refuse_changes(stored.manifest)
            weights = _weights(stored, state)
        return cls(
            model=type(model).__name__, making=making, plan=plan, stored=stored, weights=weights,
            call=call, leaves=leaves, sizes=captured.sizes,
        )  # fmt: skip

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(map(_tensor, self.stored.manifest.inputs))

    def write(self, folder: Path, name: str) -> ModelManifest:
        """Everything but the manifest."""
        inputs, outputs = self.inputs, tuple(map(_tensor, self.stored.manifest.outputs))
        write_weights(folder / "weights.bin", self.weights)
        libtorch, features = self._build(folder, name, file_sha256(folder / "weights.bin"))
        sizes = size_conditions(self.sizes)
        text = header(name, self.model, inputs, outputs, sizes)
        (folder / f"{name}.h").write_text(text, encoding="utf-8")
        text = example(name, inputs, outputs, libtorch=libtorch)
        (folder / "example.cpp").write_text(text, encoding="utf-8")
        structures, leaves = _structures(self.making.exported, self.call, self.leaves)
        return ModelManifest(
            name=name,
            model=self.model,
            inputs=inputs,
            outputs=outputs,
            sizes=sizes,
            libtorch=libtorch,
            needs=_needed(folder / f"lib{name}.so"),
            features=features,
            structures=structures,
            leaves=leaves,
            libraries={package: version(package) for package in ("daceml", "torch", "dace")},
            program=self.stored.folder.name,
            files={file.name: file_sha256(file) for file in sorted(folder.iterdir())},
        )

    def _build(self, folder: Path, name: str, weights_sha256: str) -> tuple[bool, tuple[str, ...]]:
        """The library; whether it needs torch's, and what it needs of the processor."""
        from daceml.codegen.driver_parts import parts_of
        from daceml.codegen.kernel_objects import KernelObjects, lanes_object
        from daceml.toolchain.cxx import toolchain, torch_header
        from daceml.toolchain.trusted_paths import private_folder

        tools, cache = toolchain(), self.making.cache
        torch_declared, features = torch_header(cache), tools.features()
        with private_folder() as work:
            kernels = KernelObjects(cache)
            for kernel in self.plan.kernels:
                kernels.begin(kernel)
            objects = [job.result() for job in kernels.objects(self.plan.kernels)]
            kernels.close()
            driver = (self.stored.folder / "driver.cpp").read_text()
            tools.compile_driver(driver, work, torch_declared)
            parts = [part.object(cache) for part in parts_of(self.plan.steps)]
            objects += parts
            libtorch = any(_torch_calls(one) for one in (work / "driver.o", *parts))
            outputs = tuple(map(_tensor, self.stored.manifest.outputs))
            text = implementation(
                name,
                interface=interface_text(self.inputs, outputs),
                weights_sha256=weights_sha256,
                features=features,
                size_check=size_check(self.sizes, self.inputs),
                folder=str(_CPP),
            )
            objects += [work / "driver.o", lanes_object(cache)]
            objects.append(tools.compile_anywhere(text, work, "model", torch_declared))
            if not libtorch:
                tensors = (_CPP / "host_tensors.cpp").read_text()
                objects.append(tools.compile_anywhere(tensors, work, "host_tensors", torch_declared))
            library = work / f"lib{name}.so"
            exported = [f"{name}_{function}" for function in _FUNCTIONS]
            tools.link_library(objects, library, exported, torch_declared if libtorch else None)
            shutil.copy2(library, folder)
        return libtorch, features


# Torch's functions that `host_tensors.cpp` has
_OWN = frozenset(re.findall(r"\baoti_torch_\w+(?=\()", (_CPP / "host_tensors.cpp").read_text()))


def _torch_calls(made: Path) -> set[str]:
    """Functions of torch that an object calls and that only torch has."""
    said = subprocess.run(["nm", "-u", str(made)], capture_output=True, text=True, check=True).stdout
    called = {line.split()[-1] for line in said.splitlines() if line.strip()}
    return {name for name in called if name.startswith(("aoti_torch_", "torch_"))} - _OWN


def _weights(stored: StoredProgram, state: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """In the program's order: the module's own, constants, what is made of them."""
    from daceml.runtime.weight_preparation import prepared_weights

    manifest = stored.manifest
    return [
        *(state[key] for key in manifest.weights),
        *stored.constants(),
        *prepared_weights(manifest.prepared, state),
    ]


def _tensor(record: TensorRecord) -> Tensor:
    from daceml.runtime.torch_types import DTYPES

    dtype = str(DTYPES[record.dtype]).removeprefix("torch.")
    return Tensor(name=record.name, dtype=dtype, code=record.dtype, shape=record.shape)


def _structures(
    exported: torch.export.ExportedProgram, call: pytree.TreeSpec, given: Sequence[Any]
) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """How arguments and results are nested, and which leaves are tensors."""
    import torch
    from torch.export.graph_signature import OutputKind, TensorArgument
    from torch.utils import _pytree as pytree

    result = exported.call_spec.out_spec
    assert result is not None, "torch writes it"
    try:
        structures = {"call": pytree.treespec_dumps(call), "result": pytree.treespec_dumps(result)}
    except NotImplementedError as error:
        raise DeploymentError(
            "arguments or results are nested in a class of your own",
            why=str(error),
            fix="take and return tensors, tuples, lists and dictionaries",
        ) from error
    specs = exported.graph_signature.output_specs
    made = [one.arg for one in specs if one.kind is OutputKind.USER_OUTPUT]
    return structures, {
        "call": _leaves([(isinstance(leaf, torch.Tensor), leaf) for leaf in given]),
        "result": _leaves(
            [(isinstance(leaf, TensorArgument), getattr(leaf, "value", leaf)) for leaf in made]
        ),
    }


def _leaves(values: Sequence[tuple[bool, Any]]) -> list[Any]:
    """Numbers of tensors, and values of what is none."""
    found: list[Any] = []
    count = 0
    for is_tensor, value in values:
        if is_tensor:
            found.append(count)
            count += 1
            continue
        try:
            json.dumps(value)
        except TypeError as error:
            raise DeploymentError(
                f"an argument or a result is a {type(value).__name__}",
                why="its value is not known, or has no form in a file",
                fix="take and return tensors, numbers, strings and None",
            ) from error
        found.append({"value": value})
    return found


def _needed(library: Path) -> tuple[str, ...]:
    said = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    return tuple(re.findall(r"\(NEEDED\).*\[(.+)\]", said))

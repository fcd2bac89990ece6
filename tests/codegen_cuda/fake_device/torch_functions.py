"""C++ for torch's C functions of CUDA operators that calls the operators through the dispatcher.

What a function takes is read from torch's header, what an operator takes from its schema; both name their
parameters alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_HEADER = "torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h"
_DECLARED = re.compile(r"AOTITorchError (aoti_torch_cuda_(\w+))\(([^)]*)\);")
_PARAMETER = re.compile(r"(.*?)(\w+)$")
# type in a schema -> how an argument is made of the parameter, and of `NAME_len_` where it is a list
FORMS = {
    "Tensor": "fake::tensor({0})",
    "Optional[Tensor]": "fake::optional_tensor({0})",
    "List[Tensor]": "fake::tensors({0}, {0}_len_)",
    "List[Optional[Tensor]]": "fake::optional_tensors({0}, {0}_len_)",
    "int": "fake::IValue(std::int64_t({0}))",
    "Optional[int]": "fake::optional<std::int64_t>({0})",
    "List[int]": "fake::list<std::int64_t>({0}, {0}_len_)",
    "Optional[List[int]]": "fake::optional_list<std::int64_t>({0}, {0}_len_)",
    "number": "fake::IValue(double({0}))",
    "Optional[number]": "fake::optional<double>({0})",
    "float": "fake::IValue(double({0}))",
    "Optional[float]": "fake::optional<double>({0})",
    "bool": "fake::IValue({0} != 0)",
    "Optional[bool]": "fake::optional<bool>({0})",
    "List[bool]": "fake::list<bool>({0}, {0}_len_)",
    "str": "fake::IValue(std::string({0}))",
    "Optional[str]": "fake::optional_string({0})",
    "Optional[Device]": "fake::device({0}, {0}_index_)",
    "Optional[Generator]": "fake::generator({0})",
}


def functions_text(torch_include: Path) -> tuple[str, list[str]]:
    """The C++ text, and the functions that no operator was found for."""
    schemas = _schemas()
    parts = ['#include "boxed.h"\n\nextern "C" {\n']
    unknown: list[str] = []
    for function, name, declared in _DECLARED.findall((torch_include / _HEADER).read_text()):
        parameters = dict(_parameters(declared))
        body = next((text for one in schemas.get(name, ()) if (text := _body(one, parameters))), None)
        if body is None:
            unknown.append(function)
            body = f'std::cerr << "{function} has no stand-in" << std::endl;\n    return AOTI_TORCH_FAILURE;'
        parts.append(f"AOTITorchError {function}({declared}) {{\n    {body}\n}}\n")
    return "\n".join([*parts, "}\n"]), unknown


def _parameters(declared: str) -> Iterator[tuple[str, str]]:
    for one in declared.split(","):
        found = _PARAMETER.match(one.strip())
        assert found is not None, one
        yield found[2], found[1].strip()


def _schemas() -> Mapping[str, list[Any]]:
    """Operators of ATen by the names that their C functions may have: `sort.stable` by `sort_stable`."""
    import torch

    found: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            full = f"{name}_{schema.overload_name}" if schema.overload_name else name
            found.setdefault(full, []).append(schema)
    return found


def _body(schema: Any, parameters: Mapping[str, str]) -> str | None:
    arguments: list[str] = []
    for argument in schema.arguments:
        form = FORMS.get(str(argument.type))
        if argument.name not in parameters or form is None:
            return None
        arguments.append(form.format(argument.name))
    results = [name for name in parameters if re.fullmatch(r"ret\d*", name)]
    given = "".join(f", {name}" for name in results)
    return f'return fake::call("{schema.name}", "{schema.overload_name}", {{{", ".join(arguments)}}}{given});'

"""What C and C++ programs see of an exported model: a header, and a program that runs it."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.deployment.interface import Tensor
from daceml.deployment.size_conditions import SizeConditions

_TYPES = {
    "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t", "bool": "uint8_t",
    "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "complex64": "float", "complex128": "double",
}  # fmt: skip


def header(
    name: str, model: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: SizeConditions
) -> str:
    """The header of a library."""
    guard = f"{name.upper()}_H"
    return f"""/* {model}, compiled by daceml. Arrays are in row-major order.
 *
 * Inputs:
{_listed(inputs)}
 * Results:
{_listed(outputs)}
{_open_sizes(sizes)} *
 * Sizes in letters are those of the call. bool is a byte, 0 or 1; float16 and bfloat16 are their bits; a
 * complex number is two, the real part first. Threads may share a model, and a process may load it several
 * times.
 */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#define {name.upper()}_INPUTS {len(inputs)}
#define {name.upper()}_OUTPUTS {len(outputs)}

#ifdef __cplusplus
extern "C" {{
#endif

typedef struct {name}_model {name}_model;

/* Reads the weights ("weights.bin"). NULL, and a sentence in `error` (which may be NULL), if that fails. */
{name}_model* {name}_load(const char* weights, char* error, int64_t error_bytes);

/* Runs the model once. 0, or 1 and a sentence in `error`; then results are not defined.
 *
 * inputs, outputs: addresses of arrays that the caller owns.
 * sizes: of each input, as many as it has dimensions; NULL where none of them differ from call to call. */
int32_t {name}_run({name}_model* model, const void* const* inputs, const int64_t* const* sizes,
                   void* const* outputs, char* error, int64_t error_bytes);

/* Writes the sizes of all results, one after another, for inputs of these sizes. */
int32_t {name}_output_sizes({name}_model* model, const int64_t* const* sizes, int64_t* found, char* error,
                            int64_t error_bytes);

/* Types and ranks of inputs and results, as text. */
const char* {name}_interface(void);

void {name}_free({name}_model* model);

#ifdef __cplusplus
}}
#endif
#endif
"""


def example(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, libtorch: bool) -> str:
    """A C++ program that reads inputs from files and writes results to others."""
    torch = (
        ' -L"$TORCH/lib" -Wl,--disable-new-dtags,-rpath,"$TORCH/lib" -ltorch_cpu -lc10' if libtorch else ""
    )
    told = (
        '//   TORCH=$(python -c "import torch; print(torch.__path__[0])")  or where libtorch is\n'
        if libtorch
        else ""
    )
    is_open = any(isinstance(extent, str) for t in inputs for extent in t.shape)
    behind = (
        "\n// Behind a file whose sizes are open (-1 in input_sizes) they follow: x.bin:8,3,224,224"
        if is_open
        else ""
    )
    ranks = ", ".join(str(len(t.shape)) for t in inputs)
    return f"""// Runs the model once: reads arrays as they lie in memory, and writes results in that form.
//
{told}//   g++ -std=c++17 -O2 example.cpp -L. -l{name} -Wl,-rpath,'$ORIGIN'{torch} -o example
//   ./example weights.bin INPUT... RESULT...
//
// {_call(inputs, outputs)}{behind}
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "{name}.h"

static const int64_t input_sizes[] = {{{_flat(inputs)}0}};
static const char* const input_names[] = {{{"".join(f'"{t.name}", ' for t in inputs)}""}};
static const int64_t input_items[] = {{{"".join(f"{item_bytes(t.dtype)}, " for t in inputs)}0}};
static const int input_ranks[] = {{{ranks}{", " if ranks else ""}0}};
static const int output_ranks[] = {{{"".join(f"{len(t.shape)}, " for t in outputs)}0}};
static const int64_t output_items[] = {{{"".join(f"{item_bytes(t.dtype)}, " for t in outputs)}0}};

// Takes the sizes that stand behind the last colon off a word; whether they are there, and fit.
static bool take_sizes(std::string& path, const int64_t* declared, std::vector<int64_t>& extents) {{
  size_t colon = path.rfind(':');
  if (colon == std::string::npos) return false;
  const char* text = path.c_str() + colon;
  for (size_t d = 0; d < extents.size(); ++d) {{
    char* end = nullptr;
    extents[d] = strtoll(text + 1, &end, 10);
    if (*text != (d == 0 ? ':' : ',') || end == text + 1 || extents[d] < 0) return false;
    if (declared[d] >= 0 && declared[d] != extents[d]) return false;
    text = end;
  }}
  if (*text != 0) return false;
  path.resize(colon);
  return true;
}}

int main(int count, char** words) {{
  if (count != 2 + {name.upper()}_INPUTS + {name.upper()}_OUTPUTS) {{
    fprintf(stderr, "usage: example weights.bin{"".join(f" {t.name}" for t in inputs)}{
        "".join(f" {t.name}" for t in outputs)
    }: the files of {_counted(len(inputs), "input")} and {_counted(len(outputs), "result")}\\n");
    return 2;
  }}
  std::vector<std::vector<char>> given, made;
  std::vector<const void*> inputs;
  std::vector<std::vector<int64_t>> extents;
  std::vector<const int64_t*> sizes;
  const int64_t* size = input_sizes;
  for (int i = 0; i < {name.upper()}_INPUTS; ++i) {{
    std::string path = words[2 + i];
    extents.emplace_back(size, size + input_ranks[i]);
    bool open = false;
    for (int64_t extent : extents.back()) open = open || extent < 0;
    if (open && !take_sizes(path, size, extents.back())) {{
      fprintf(stderr, "sizes of %s are open: write them behind the file, %s:", input_names[i], path.c_str());
      for (int d = 0; d < input_ranks[i]; ++d) {{
        if (d > 0) fprintf(stderr, ",");
        size[d] < 0 ? fprintf(stderr, "N") : fprintf(stderr, "%lld", static_cast<long long>(size[d]));
      }}
      fprintf(stderr, "\\n");
      return 2;
    }}
    int64_t bytes = input_items[i];
    for (int64_t extent : extents.back()) bytes *= extent;
    std::ifstream file(path, std::ios::binary);
    if (!file) return fprintf(stderr, "%s, for %s, cannot be opened\\n", path.c_str(), input_names[i]), 2;
    given.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (static_cast<int64_t>(given.back().size()) != bytes) {{
      fprintf(stderr, "%s has %zu bytes, and %s has %lld\\n", path.c_str(), given.back().size(),
              input_names[i], static_cast<long long>(bytes));
      return 2;
    }}
    size += input_ranks[i];
  }}
  for (auto& array : given) inputs.push_back(array.data());
  for (auto& one : extents) sizes.push_back(one.data());

  char error[512];
  {name}_model* model = {name}_load(words[1], error, sizeof error);
  if (model == nullptr) return fprintf(stderr, "%s\\n", error), 1;

  std::vector<int64_t> output_sizes({sum(len(t.shape) for t in outputs) + 1});
  if ({name}_output_sizes(model, sizes.data(), output_sizes.data(), error, sizeof error) != 0) {{
    return fprintf(stderr, "%s\\n", error), 1;
  }}
  std::vector<void*> outputs;
  const int64_t* found = output_sizes.data();
  for (int i = 0; i < {name.upper()}_OUTPUTS; ++i) {{
    int64_t bytes = output_items[i];
    for (int d = 0; d < output_ranks[i]; ++d) bytes *= *found++;
    made.emplace_back(bytes);
  }}
  for (auto& array : made) outputs.push_back(array.data());

  if ({name}_run(model, inputs.data(), sizes.data(), outputs.data(), error, sizeof error) != 0) {{
    return fprintf(stderr, "%s\\n", error), 1;
  }}
  for (int i = 0; i < {name.upper()}_OUTPUTS; ++i) {{
    const char* path = words[2 + {name.upper()}_INPUTS + i];
    std::ofstream file(path, std::ios::binary);
    file.write(made[i].data(), static_cast<std::streamsize>(made[i].size()));
    if (!file.flush()) return fprintf(stderr, "%s cannot be written\\n", path), 1;
  }}
  {name}_free(model);
  return 0;
}}
"""


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def implementation(
    name: str,
    *,
    interface: str,
    weights_sha256: str,
    features: Sequence[str],
    size_check: str,
    folder: str,
) -> str:
    """The source of a library's functions.

    Args:
        interface: the text of its inputs and results.
        features: of the processor that it needs.
        size_check: the function `refused_sizes`.
        folder: that has `model.cpp`.
    """
    required = " ".join(f'DACEML_FEATURE("{feature}")' for feature in features)
    return f"""#define DACEML_FUNCTION(function) {name}_##function
#define DACEML_INTERFACE "{interface}"
#define DACEML_WEIGHTS_SHA256 "{weights_sha256}"
#define DACEML_FEATURES {required}
{size_check}
#include "{folder}/model.cpp"
"""


def item_bytes(dtype: str) -> int:
    """Of an element."""
    import torch

    return int(getattr(torch, dtype).itemsize)


def _listed(tensors: Sequence[Tensor]) -> str:
    lines: list[str] = []
    for number, tensor in enumerate(tensors):
        extents = "".join(f"[{extent}]" for extent in tensor.shape)
        lines.append(f" *   {number}: {tensor.name}, {_TYPES[tensor.dtype]}{extents} ({tensor.dtype})")
    return "\n".join(lines) or " *   none"


def _open_sizes(sizes: SizeConditions) -> str:
    """Lines that say which sizes are taken; none where all are fixed."""
    rows = [f"{s}: {low} to {'any' if high is None else high}" for s, (low, high) in sizes.ranges.items()]
    rows = ["Sizes that are taken; others are refused:", *(f"  {row}" for row in (*rows, *sizes.conditions))]
    return "".join(f" * {row}\n" for row in rows) if sizes.ranges else ""


def _call(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    return f"({', '.join(t.name for t in inputs)}) -> ({', '.join(t.name for t in outputs)})"


def _flat(tensors: Sequence[Tensor]) -> str:
    """Sizes of all inputs; what differs from call to call is to be filled in."""
    return "".join(f"{extent if isinstance(extent, int) else -1}, " for t in tensors for extent in t.shape)

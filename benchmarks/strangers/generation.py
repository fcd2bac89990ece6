"""Whether text that compiled modules generate is that of eager PyTorch, in few programs.

A model of transformers writes 32 tokens after two prompts, one of which is padded on its left, and keeps keys
and values: in a cache that grows (`dynamic`), or in one of fixed length (`static`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args
from unittest import mock

import torch
from torch import nn

import daceml
from benchmarks.bars import Bar
from benchmarks.children import Tell, run_cases
from benchmarks.strangers.torchvision_operators import declare_torchvision
from daceml.errors import DacemlError, first_line
from daceml.module import compile as module_compile
from daceml.module.partial.cut import Cut
from daceml.module.partial.region_ledger import recorded_regions

Entrance = Literal["daceml.compile", "torch.compile"]
CacheKind = Literal["dynamic", "static"]
Kind = Literal["equal", "wrong", "refused", "foreign", "not made"]

TOKENS = 32
MOST_COMPILATIONS = 3
"""The prompt, a token after it, and a token with a length that is symbolic."""

_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64, "num_key_value_heads": 2, **_ENDS,
}  # fmt: skip
_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config",
             {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **_ENDS}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA),
    "t5": ("T5ForConditionalGeneration", "T5Config",
           {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
            "decoder_start_token_id": 0}),
}  # fmt: skip

CASES: list[tuple[str, Entrance, CacheKind]] = [
    (name, entrance, cache)
    for name in _MODELS
    for entrance in get_args(Entrance)
    for cache in get_args(CacheKind)
]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What one model came to.

    Attributes:
        compilations: programs, over two generations.
        eager_flops: share of FLOPs outside programs, in the second generation.
    """

    model: str
    entrance: Entrance
    cache: CacheKind
    kind: Kind
    compilations: int = 0
    eager_flops: float = 0.0
    seconds: float = 0.0
    note: str = ""

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        figures = (
            f"{self.compilations} compilations, {self.eager_flops:.0%} of FLOPs eagerly, {self.seconds:.0f} s"
        )
        return (
            f"{self.model:<6} {self.entrance:<15} {self.cache:<8} {self.kind:<8} {figures}  {self.note[:150]}"
        )


def generation(name: str, entrance: Entrance, cache: CacheKind) -> Generation:
    """Let a model generate eagerly, and twice compiled."""
    facts: dict[str, Any] = {"model": name, "entrance": entrance, "cache": cache}
    try:
        model, generate = _made(name, cache)
        expected = generate(model)
    except Exception as error:
        return Generation(**facts, kind="not made", note=first_line(error))
    start = time.perf_counter()
    try:
        with _counted_compilations() as programs:
            compiled = _compiled(model, entrance)
            found = [generate(compiled)]
            with recorded_regions() as ledger, ledger.inside(None, "eager", [Cut(what="no part of forward")]):
                found.append(generate(compiled))
    except DacemlError as error:
        return Generation(**facts, kind="refused", note=first_line(error))
    except Exception as error:
        return Generation(**facts, kind="foreign", note=f"{type(error).__name__}: {first_line(error)}")
    facts |= {"compilations": len(programs), "seconds": time.perf_counter() - start}
    facts["eager_flops"] = ledger.eager_flops / (ledger.eager_flops + ledger.compiled_flops)
    wrong = [place for place, tokens in enumerate(found) if not torch.equal(tokens, expected)]
    note = f"other tokens in generation {wrong[0]}" if wrong else "; ".join(programs[MOST_COMPILATIONS:])
    return Generation(**facts, kind="wrong" if wrong else "equal", note=note)


def _made(name: str, cache: CacheKind) -> tuple[nn.Module, Callable[[Any], torch.Tensor]]:
    declare_torchvision()
    import transformers

    kind, config, options = _MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**options)).eval()
    prompts = torch.randint(3, 100, (2, 7))
    mask = torch.ones_like(prompts)
    prompts[0, :3] = mask[0, :3] = 0
    more = {} if cache == "dynamic" else {"cache_implementation": cache}

    def generate(model: Any) -> torch.Tensor:
        return model.generate(
            prompts,
            attention_mask=mask,
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            do_sample=False,
            **more,
        )

    return model, generate


def _compiled(model: nn.Module, entrance: Entrance) -> nn.Module:
    if entrance == "daceml.compile":
        return daceml.compile(model, fullgraph=False)
    model.compile(backend="daceml")  # `generate` of what torch.compile returns calls the model as it was
    return model


@contextmanager
def _counted_compilations() -> Generator[list[str]]:
    """The names of modules, and the shapes, that programs are compiled for within the block."""
    found: list[str] = []
    compile_variant = module_compile.compile_variant

    def counted(request: Any, arguments: Any, *more: Any, **named: Any) -> Any:
        found.append(f"{type(request.module).__name__} {arguments.describe(request.module.forward)}")
        return compile_variant(request, arguments, *more, **named)

    with mock.patch.object(module_compile, "compile_variant", counted):
        yield found


def rows_of(
    cases: Sequence[tuple[str, Entrance, CacheKind]], *, processes: int, limit_s: float
) -> list[dict[str, Any]]:
    """A row for each case, which runs in a process; a crash or a timeout is a row as well."""

    def work(number: int, tell: Tell) -> None:
        torch.set_num_threads(1)
        found = generation(*cases[number])
        print(found.line(), flush=True)
        tell(found.row())

    rows: list[dict[str, Any]] = []
    for outcome in run_cases(work, range(len(cases)), processes=processes, limit_s=limit_s):
        model, entrance, cache = cases[outcome.case]
        lost = Generation(
            model=model, entrance=entrance, cache=cache, kind="foreign", eager_flops=1.0, note=outcome.end
        )
        rows.append(outcome.told or lost.row())
    return rows


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Nothing wrong, few programs, and FLOPs in programs."""

    def count(kind: str) -> Bar:
        some = [f"{row['model']} {row['entrance']} {row['cache']}" for row in rows if row["kind"] == kind]
        return Bar(name=f"generations {kind}", figure=len(some), limit=0, note=", ".join(some[:3]))

    most = {
        e: max((r["compilations"] for r in rows if r["entrance"] == e), default=0) for e in get_args(Entrance)
    }
    return [
        *map(count, ("not made", "refused", "foreign", "wrong")),
        *(Bar(name=f"compilations, {e}, most", figure=most[e], limit=MOST_COMPILATIONS) for e in most),
        Bar(  # `generate` calls the encoder of T5 by itself, which no compiled forward sees
            name="FLOPs that run eagerly, encoders among them, most",
            figure=max(100 * r["eager_flops"] for r in rows),
            limit=20,
            unit="%",
        ),
    ]

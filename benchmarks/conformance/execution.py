"""One case compiled and run, by daceml or by the peer that is its oracle, and what became of it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.children import Outcome, Tell
from benchmarks.conformance.cases import Case
from benchmarks.conformance.compare import difference
from benchmarks.conformance.second_look import Results, nearer
from daceml.runtime.program import Program

if TYPE_CHECKING:
    from daceml.errors import DacemlError
    from daceml.frontend.onnx_import.onnx_process import OnnxProcess
    from daceml.onnx_ops.registry import Kind

# A result that is not the standard's, and the very one of ONNX Runtime alone, is "as onnxruntime"
PEER = "as onnxruntime"
# Not the standard's either, and nearer to the exact one: see `second_look`
NEARER = "nearer than the expectation"
VERDICTS = ("passed", NEARER, "refused", PEER, "wrong", "crashed")
IMPLEMENTATIONS = ("native", "any")
ORACLE = "onnxruntime"
# The compiler refuses what daceml generated: that is daceml's own failure
_FAILURES = ("DML401",)
# What ONNX Runtime reads; the format has changed since in nothing that the cases use
_ORACLE_IR_VERSION = 10


def execute(case: Case, implementation: str, tell: Tell) -> None:
    """Compile and run a case, and tell `verdict`, `reason`, and `counts` of implementations."""
    if implementation == ORACLE:
        _execute_oracle(case, tell)
        return
    from daceml.errors import BeyondNetworksError, DacemlError
    from daceml.frontend.onnx_import.model_file import ModelSource
    from daceml.module.onnxruntime_model import OutsideModel

    tell({"stage": "compilation"})
    try:
        try:
            program, counts = _compile(case, implementation)
        except BeyondNetworksError as reason:
            if implementation == "native":
                raise
            outside = OutsideModel(ModelSource(model=case.model, name=case.name), reason)
            tell({"stage": "the call", "counts": {"onnxruntime": outside.nodes}})
            _judge(case, lambda inputs: _results(outside(tuple(inputs), {}), case), tell)
            return
        tell({"stage": "the call", "counts": counts})
        _judge(case, lambda inputs: _call(program, inputs), tell)
    except DacemlError as error:
        tell(_refusal(error))
    except Exception as error:
        places = [
            f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-3:]
        ]
        reason = f"{type(error).__name__}: {str(error)[:300]} at {', '.join(places)}"
        tell({"verdict": "crashed", "reason": reason})


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """Verdict, reason and counts of a case, whether or not its process came to an end."""
    told = {key: outcome.told[key] for key in ("verdict", "reason", "counts") if key in outcome.told}
    if "verdict" not in told:
        reason = f"{outcome.end or 'no verdict'} in {outcome.told.get('stage', 'the beginning')}"
        told |= {"verdict": "crashed", "reason": reason}
    return {"reason": "", "counts": {}, **told}


def _compile(case: Case, implementation: str) -> tuple[Program, dict[str, int]]:
    from daceml.compiler.keys.program_key import model_key
    from daceml.compiler.stages.lowered_network import Optimised
    from daceml.compiler.stages.program_folder import build
    from daceml.compiler.stages.stage_timer import Stages
    from daceml.config import config
    from daceml.frontend.onnx_import.importer import import_source
    from daceml.frontend.onnx_import.model_file import ModelSource, checked
    from daceml.onnx_ops.lowering import lower
    from daceml.onnx_ops.registry import KINDS
    from daceml.runtime.stored_program import StoredProgram
    from daceml.toolchain.cache import Cache, digest
    from daceml.transformations.standard import loop_recipe

    source = checked(ModelSource(model=case.model, name=case.name))
    network = import_source(source, name="case", process=_onnx_process())
    allowed: tuple[Kind, ...] = ("alias", "native") if implementation == "native" else KINDS
    lowering = lower(network, allowed=allowed)
    chosen = [node.chosen for node in lowering.nodes]
    cache = Cache(config().cache_folder)

    def make(folder: Path) -> None:
        loop_recipe()(network)
        build(Optimised(network=network, lowering=lowering, unfused={}), cache, folder, Stages())

    # where every node is native in any case, both forms are one program
    key = digest(model_key(source.model, {}, source.weight_names()), *chosen)
    stored = StoredProgram(cache.get("conformance", key, make))
    program = Program(stored, source.weights(stored.manifest.weights))
    return program, {kind: count for kind in KINDS if (count := lowering.count(kind))}


@lru_cache(maxsize=1)
def _onnx_process() -> OnnxProcess:
    """One for all cases of a process; it ends with it."""
    from daceml.frontend.onnx_import.onnx_process import OnnxProcess

    return OnnxProcess()


def _call(program: Program, inputs: Sequence[Any]) -> list[Any]:
    from daceml.module.arrays.array_kinds import to_numpy
    from daceml.module.arrays.call_inputs import collect_inputs

    tensors, _ = collect_inputs("the case", program.manifest.inputs, inputs, {})
    return [to_numpy(tensor) for tensor in program(tensors)]


def _results(results: Any, case: Case) -> list[Any]:
    return list(results) if len(case.model.graph.output) > 1 else [results]


def _judge(case: Case, call: Callable[[Sequence[Any]], Sequence[Any]], tell: Tell) -> None:
    told = {"verdict": "passed"}
    for inputs, expected in case.data:
        results = call(inputs)
        reason = difference(results, expected, rtol=case.rtol, atol=case.atol, statistical=case.statistical)
        if not reason:
            continue
        told = {"verdict": "wrong", "reason": reason}
        if case.statistical or not nearer(case, Results(inputs=inputs, ours=results, expected=expected)):
            break
        told["verdict"] = NEARER
    tell(told)


def _refusal(error: DacemlError) -> dict[str, Any]:
    why = [line for line in error.why.splitlines() if "are not allowed here" not in line]
    reason = f"{error.code} {error.what}: {'; '.join(why) or 'no implementation is registered'}"
    return {"verdict": "crashed" if error.code in _FAILURES else "refused", "reason": reason}


def _execute_oracle(case: Case, tell: Tell) -> None:
    import onnx
    import onnxruntime

    tell({"stage": ORACLE})
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = min(model.ir_version, _ORACLE_IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_inputs()]
        _judge(case, lambda inputs: session.run(None, dict(zip(names, inputs, strict=False))), tell)
    except Exception as error:  # whatever it says: it does not pass this case
        tell({"verdict": "refused", "reason": str(error).splitlines()[0][:300]})


# What names, shapes and numbers of one case stand for, so that equal reasons are counted together
_OWN = (
    (re.compile(r"/onnxruntime_src/\S+"), "…"),
    (re.compile(r"'[^']*'"), "…"),
    (re.compile(r"\[[^\]]*\]"), "[…]"),
    (re.compile(r"\([\d, ]*\)"), "(…)"),
    (re.compile(r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?(?![\w.])"), "n"),
)


def reason_group(reason: str) -> str:
    """The reason without what belongs to one case alone."""
    for pattern, shown in _OWN:
        reason = pattern.sub(shown, reason)
    return reason

"""From a lowered network to the folder of a stored program."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from daceml.codegen.build import build_program
from daceml.codegen.constants import save_constants
from daceml.codegen.kernel_objects import KernelObjects
from daceml.codegen.planning.plan import make_plan
from daceml.compiler.stages.launch_records import built_launches
from daceml.compiler.stages.lowered_network import Optimised
from daceml.compiler.stages.manifest_writer import make_manifest, save_fallbacks
from daceml.compiler.stages.stage_timer import Stages
from daceml.onnx_ops.external import external_call
from daceml.toolchain.cache import Cache


def build(
    optimised: Optimised,
    cache: Cache,
    folder: Path,
    stages: Stages,
    *,
    given: Collection[str] | None = None,
    objects: KernelObjects | None = None,
    ranges: bool = False,
) -> None:
    """Write everything that a stored program consists of into `folder`.

    Args:
        given: see `make_plan`.
        objects, ranges: see `build_program`.
    """
    with stages.stage("plan"):
        outliner = None if objects is None else objects.outliner
        plan = make_plan(optimised.network, external_call, given=given, outliner=outliner)
        constants = save_constants(plan, folder)
        fallbacks = save_fallbacks(plan, folder)
    made_for = optimised.network
    kernels = KernelObjects(cache, made_for.device, made_for.architecture) if objects is None else objects
    try:
        with stages.stage("kernels"):
            build_program(plan, cache, folder, kernels, ranges=ranges)
        launches = built_launches(plan, kernels)
    finally:
        if objects is None:
            kernels.close()
    manifest = make_manifest(
        plan,
        optimised.lowering,
        absorbed=optimised.absorbed,
        constants=constants,
        fallbacks=fallbacks,
        launches=launches,
    )
    replace(
        manifest,
        unfused=optimised.unfused,
        stages_s=stages.seconds,
    ).save(folder)

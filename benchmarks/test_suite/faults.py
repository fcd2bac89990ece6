"""Faults that are put into daceml one at a time, to judge whether the test suite notices them.

Each is a mistake that a programmer makes: a check left out, a part of a key forgotten, an end that is off by
one. They were chosen from the code alone, without a look at its tests, and mostly where few calls come by:
ties, limits, paddings, element types, orders in memory. Every package has at least one.
"""

from __future__ import annotations

from benchmarks.test_suite.fault import Fault

FAULTS: tuple[Fault, ...] = (
    # sdfg
    Fault(
        file="daceml/sdfg/outline.py",
        old='text = f"{kind} {desc.dtype.to_string()} [{sizes}] strides [{strides}] {desc.storage.name}"',
        new='text = f"{kind} {desc.dtype.to_string()} [{sizes}] {desc.storage.name}"',
        wrong="arrays of one shape that lie in memory in different orders have kernels of their own",
    ),
    # onnx_ops
    Fault(
        file="daceml/onnx_ops/native/ordering.py",
        old="earlier = same & (index_value(k) < index_value(index[axis]))",
        new="earlier = same & (index_value(k) > index_value(index[axis]))",
        wrong="of equal elements, TopK takes the one at the lower index first",
    ),
    Fault(
        file="daceml/onnx_ops/native/pooling.py",
        old="if (include_pad or not (before or after)) and not beyond:",
        new="if include_pad or not (before or after):",
        wrong="an average does not count what ceil_mode adds behind the padding",
    ),
    # autodiff
    Fault(
        file="daceml/autodiff/scalar_derivatives.py",
        old='"trunc_mod": lambda args, y, g: (g, -g * apply("trunc", args[0] / args[1])),',
        new='"trunc_mod": lambda args, y, g: (g, -g * apply("floor", args[0] / args[1])),',
        wrong="the derivative of fmod by its divisor is right where the quotient is negative",
    ),
    Fault(
        file="daceml/autodiff/rules/pooling.py",
        old="""        and tuple(windows.kernel) == tuple(extents)
        and not any(windows.before)
""",
        new="""        and tuple(windows.kernel) == tuple(extents)
""",
        wrong="elements outside the only window of an average, which padding has moved, have no gradient",
    ),
    # transformations
    Fault(
        file="daceml/transformations/coarse/convolution_padding.py",
        old="if any((*before[:2], *after[:2])):",
        new="if any(before[:2]):",
        wrong="a Pad that adds channels behind the others is not taken into a convolution",
    ),
    Fault(
        file="daceml/transformations/layout/in_place.py",
        old="""        if any(str(e.data.subset) != place for e in reads):
            return "the kernel reads elements other than the one it writes"
""",
        new="",
        wrong="a loop writes in place only if it reads no element that another iteration writes",
    ),
    # toolchain
    Fault(
        file="daceml/toolchain/cache.py",
        old="""        except OSError:
            return f"{name} is missing"
""",
        new="""        except OSError:
            continue
""",
        wrong="an entry of the cache that lacks a file is found damaged and built again",
    ),
    # runtime
    Fault(
        file="daceml/runtime/fingerprint.cpp",
        old="std::upper_bound(ends.begin(), ends.end(), k)",
        new="std::lower_bound(ends.begin(), ends.end(), k)",
        wrong="the fingerprint of weights changes with the beginning of each of them, not of the first alone",
    ),
    # codegen_cuda
    Fault(
        file="daceml/codegen_cuda/include/daceml/collectives.h",
        old="        __syncthreads();  // the next reduction writes where this one has read\n",
        new="",
        wrong="all warps have read the partial results of a block before the next reduction overwrites them",
    ),
    # codegen
    Fault(
        file="daceml/codegen/planning/workspace_offsets.py",
        old="offset = max(offset, start + _aligned_static(other))",
        new="offset = start + _aligned_static(other)",
        wrong="no two arrays that are alive together overlap in the workspace",
    ),
    # frontend
    Fault(
        file="daceml/frontend/onnx_export/random_memory_order.py",
        old="permute, (result, sorted(range(len(order)), key=order.__getitem__))",
        new="permute, (result, order)",
        wrong="what was drawn in the order of memory is permuted back to the dimensions that it had",
    ),
    # compiler
    Fault(
        file="daceml/compiler/guards.py",
        old="key.append((type(leaf), repr(leaf)))",
        new="key.append((type(leaf), leaf))",
        wrong="0.0 and -0.0 have programs of their own, and calls with nan share one",
    ),
    # tuning
    Fault(
        file="daceml/tuning/reuse_distance.py",
        old="distance = min(moved - last[array], around)",
        new="distance = min(moved, around)",
        wrong="what a step has just written is taken to be as far away as the start of the call",
    ),
    # module
    Fault(
        file="daceml/module/strided_views.py",
        old="return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)",
        new="return tensor.as_strided(shape, strides, offset)",
        wrong="a result that is a view of an input begins in it, also where the input is a part of a tensor",
    ),
    # distributed
    Fault(
        file="daceml/distributed/bucket_plan.py",
        old="            if name in bucket_of:\n",
        new="            if bucket_of.get(name) == number:\n",
        wrong="a parameter in two buckets of a plan is averaged twice",
    ),
    # deployment
    Fault(
        file="daceml/deployment/cpp/model.cpp",
        old="""    if (wanted != symbols) {
      forget_views();
      symbols = wanted;
    }
""",
        new="""    symbols = wanted;
""",
        wrong="an exported model forgets views of another size when a call is smaller than the one before",
    ),
    # verification
    Fault(
        file="daceml/verification/accuracy.py",
        old="return int((~((ours == theirs) | (torch.isnan(ours) & torch.isnan(theirs)))).sum())",
        new="return int((torch.isnan(ours) != torch.isnan(theirs)).sum())",
        wrong="a comparison fails where eager has an infinity, and the result another one or a number",
    ),
    # exploration
    Fault(
        file="daceml/exploration/effects.py",
        old="return Ratio(value=1 / self.value, low=1 / self.high, high=1 / self.low)",
        new="return Ratio(value=1 / self.value, low=1 / self.low, high=1 / self.high)",
        wrong="the interval of the effect of a pass has its lower end below its upper end",
    ),
    # devices
    Fault(
        file="daceml/devices/occupancy.py",
        old="resident = limits.parts * (limits.registers // limits.parts // of_warp)",
        new="resident = limits.registers // of_warp",
        wrong="each warp has its registers in one part of a multiprocessor, which leaves rests unused",
    ),
    # operations
    Fault(
        file="daceml/operations/work/contraction_work.py",
        old="(n + 2 * p - d * (k - 1) - 1) // s + 1",
        new="(n + 2 * p - k) // s + 1",
        wrong="the work of a convolution with dilation is that of the result that it has",
    ),
    # profiling
    Fault(
        file="daceml/profiling/kineto/pairs.py",
        old="begun = waiting.pop()",
        new="begun = waiting.pop(0)",
        wrong="an end belongs to the last event of its thread that is still open",
    ),
    # simulation
    Fault(
        file="daceml/simulation/memory/caching_allocator.py",
        old="if rest >= MIN_BLOCK_BYTES if small else rest > SMALL_BYTES:",
        new="if rest >= MIN_BLOCK_BYTES if small else rest >= SMALL_BYTES:",
        wrong="a large block of which exactly 1 MiB would be left stays whole",
    ),
    Fault(
        file="daceml/simulation/engine/events.py",
        old="return self.rank[task], self.ready_us[task], task",
        new="return self.rank[task], task",
        wrong="of tasks of one rank, the one that was ready first runs first",
    ),
    Fault(
        file="daceml/simulation/distributed/parallelism/communication.py",
        old="crossing = Counter(node for members in spread if len(members) > 1 for node in members)",
        new="crossing = Counter(node for members in spread for node in members)",
        wrong="groups that stay inside a node have no share of the link that leaves it",
    ),
    # prediction
    Fault(
        file="daceml/prediction/model_steps/device_links.py",
        old="bytes_per_s=device.link_bytes_per_s.value / 2,",
        new="bytes_per_s=device.link_bytes_per_s.value,",
        wrong="a link carries in one direction half of what data sheets say of both",
    ),
    # report
    Fault(
        file="daceml/report/effects_text.py",
        old="return same and not (effect.changes or effect.why or effect.unmeasured)",
        new="return same and not (effect.changes or effect.unmeasured)",
        wrong="a pass that could not be judged is said to leave the program as it is",
    ),
    # gui
    Fault(
        file="daceml/gui/variants_view.py",
        old='"measured_low_ms": None if seen is None else seen.low_ms,',
        new='"measured_low_ms": None if seen is None else seen.high_ms,',
        wrong="the page shows the upper end of a measurement as its lower one, too",
    ),
    # cli
    Fault(
        file="daceml/cli/output_files.py",
        old="if real == source:",
        new="if path == read:",
        wrong="a command does not write over the file that it reads, however its path is spelled",
    ),
    # errors
    Fault(
        file="daceml/errors/compiler.py",
        old="class ExportIndexError(ExportError, IndexError):",
        new="class ExportIndexError(ExportError, LookupError):",
        wrong="whoever catches an IndexError of torch catches daceml's in its place",
    ),
)

"""Resizing against torch's interpolate: every mode, up and down, sizes and scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises
from tests.support.sampling import slowed

t = torch.from_numpy
NONE = np.zeros(0, np.float32)
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
EXACT = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_ceil",
}
_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}


def resized(
    shape: tuple[int, ...],
    mode: str,
    target: tuple[int, ...] | tuple[float, ...],
    *,
    align_corners: bool | None = None,
    dtype: Any = np.float32,
) -> Case:
    """A node that does what torch does; `target` holds sizes (ints) or scales (floats)."""
    x, space = random(*shape, dtype=dtype), len(shape) - 2
    torch_mode = _LINEAR[len(shape)] if mode == "linear" else {"cubic": "bicubic"}.get(mode, mode)
    by_scale = isinstance(target[0], float)
    how: dict[str, Any] = {"scale_factor" if by_scale else "size": target, "align_corners": align_corners}
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    expected = functional.interpolate(t(wide), mode=torch_mode, **how).numpy().astype(x.dtype)
    attributes: dict[str, Any] = {"axes": list(range(2, 2 + space))}
    if mode.startswith("nearest"):
        attributes |= EXACT if mode == "nearest-exact" else NEAREST
    else:
        coordinates = "align_corners" if align_corners else "half_pixel"
        attributes |= {"mode": mode, "coordinate_transformation_mode": coordinates}
    scales = np.array(target, np.float32) if by_scale else None
    sizes = None if by_scale else np.array(target, np.int64)
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    return Case(
        op="Resize",
        inputs=[x, None, scales, sizes],
        constants=[2 if by_scale else 3],
        attributes=attributes,
        expected=[expected],
        rtol=tolerance,
        atol=tolerance,
    )


def symbolic(case: Case, sizes: dict[int, str]) -> Case:
    case.symbolic = sizes
    return case


IMAGE = (2, 3, 5, 4)
CASES = {
    **{
        f"{mode} to {target}": resized(IMAGE, mode, target)
        for mode in ("nearest", "nearest-exact")
        for target in ((2.0, 2.0), (1.7, 0.6), (10, 12), (7, 3), (1, 1), (5, 4), (2, 9))
    },
    **{
        f"{mode} to {target}, corners {corners}": resized(IMAGE, mode, target, align_corners=corners)
        for mode in ("linear", "cubic")
        for corners in (False, True)
        for target in ((2.0, 2.0), (1.7, 0.6), (7, 3), (1, 1), (5, 9))
    },
    "nearest by 41, which torch rounds": resized((1, 1, 1, 7), "nearest", (1, 287)),
    "nearest in one dimension": resized((2, 3, 7), "nearest", (3.0,)),
    "nearest in three": resized((1, 2, 3, 2, 4), "nearest", (6, 2, 5)),
    "nearest of one pixel": resized((1, 3, 1, 1), "nearest", (4, 3)),
    "linear in one dimension": resized((2, 3, 7), "linear", (11,)),
    "linear in three": resized((1, 2, 3, 2, 4), "linear", (5, 4, 3)),
    "linear of one pixel": resized((1, 3, 1, 1), "linear", (4, 3)),
    "linear in float64": resized(IMAGE, "linear", (7, 9), dtype=np.float64),
    "cubic in float64": resized(IMAGE, "cubic", (7, 9), dtype=np.float64, align_corners=True),
    "nearest of int64": resized((1, 2, 3, 4), "nearest", (5, 9), dtype=np.int64),
    "symbolic batch, whole factor": symbolic(resized((13, 3, 5, 4), "nearest", (2.0, 2.0)), {13: "N"}),
    "symbolic batch, linear": symbolic(resized((13, 3, 5, 4), "linear", (7, 9)), {13: "N"}),
    "symbolic space, nearest": symbolic(
        resized((1, 3, 5, 11), "nearest", (2.0, 2.0)), {5: "H", 10: "2*H", 11: "W", 22: "2*W"}
    ),
    "symbolic space, linear": symbolic(
        resized((1, 3, 5, 11), "linear", (2.0, 2.0)), {5: "H", 10: "2*H", 11: "W", 22: "2*W"}
    ),
    "symbolic space, corners": symbolic(
        resized((1, 3, 5, 11), "linear", (2.0, 2.0), align_corners=True),
        {5: "H", 10: "2*H", 11: "W", 22: "2*W"},
    ),
    **{
        f"{mode}, {title}, to {sizes}": Case(
            op="Resize",
            inputs=[random(2, 1, 9, 6), None, None, np.array(sizes)],
            constants=[3],
            attributes={"mode": mode, "axes": [2, 3], **attributes},
            rtol=1e-4,
            atol=1e-5,
        )
        for mode in ("linear", "cubic")
        for title, attributes in (
            ("antialias", {"antialias": 1}),
            ("excluded", {"exclude_outside": 1}),
            ("both", {"antialias": 1, "exclude_outside": 1}),
        )
        for sizes in ((4, 5), (2, 11), (9, 1))
    },
    **{
        f"{mode}, {policy}, axes {axes}": Case(
            op="Resize",
            inputs=[random(1, 2, 9, 6), None, None, np.array([7, 8])],
            constants=[3],
            attributes={"mode": mode, "keep_aspect_ratio_policy": policy, "axes": axes},
        )
        for mode in ("nearest", "linear")
        for policy in ("not_larger", "not_smaller")
        for axes in ([2, 3], [3, 2])
    },
    **{
        f"{mode}, cropped to {roi}": Case(
            op="Resize",
            inputs=[random(1, 2, 7, 6), np.array(roi, np.float32), None, np.array([5, 4])],
            constants=[1, 3],
            attributes={
                "mode": mode,
                "axes": [2, 3],
                "coordinate_transformation_mode": "tf_crop_and_resize",
                "extrapolation_value": 10.0,
            },
        )
        for mode in ("nearest", "linear", "cubic")
        for roi in ((0.25, 0.5, 0.75, 0.75), (-0.3, 0.5, 0.6, 1.4), (0, 0, 1, 1))
    },
    "pytorch_half_pixel of one": Case(
        op="Resize",
        inputs=[random(1, 1, 4, 5), None, None, np.array([1, 1, 1, 3])],
        constants=[3],
        attributes={"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    ),
    **{
        f"nearest {rounding}": Case(
            op="Resize",
            inputs=[random(1, 1, 4, 6), None, None, np.array([1, 1, 7, 3])],
            constants=[3],
            attributes={"nearest_mode": rounding},
        )
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    },
    "float16": Case(
        op="Resize",
        inputs=[random(1, 2, 4, 5, dtype=np.float16), None, None, np.array([1, 2, 7, 3])],
        constants=[3],
        attributes={"mode": "linear"},
        expected=[
            functional.interpolate(
                t(random(1, 2, 4, 5, dtype=np.float16)).double(), size=(7, 3), mode="bilinear"
            )
            .numpy()
            .astype(np.float16)
        ],
        rtol=1e-3,
        atol=1e-3,
    ),
}


# of every product: each mode stays with sizes up and down, each option, policy and crop with two modes
SLOW = (
    *(f"{mode} to {size}" for mode in ("nearest", "nearest-exact") for size in ((10, 12), (5, 4), (2, 9))),
    *(
        f"{mode} to {target}, corners {corners}"
        for mode in ("linear", "cubic")
        for target, corners in (((1, 1), False), ((5, 9), False), ((2.0, 2.0), True), ((5, 9), True))
    ),
    *(f"linear, antialias, to {size}" for size in ((2, 11), (9, 1))),
    *(f"linear, excluded, to {size}" for size in ((4, 5), (9, 1))),
    "linear, both, to (4, 5)",
    *(f"cubic, antialias, to {size}" for size in ((4, 5), (9, 1))),
    "cubic, excluded, to (2, 11)",
    *(f"cubic, both, to {size}" for size in ((2, 11), (9, 1))),
    "nearest, not_larger, axes [3, 2]",
    "nearest, not_smaller, axes [2, 3]",
    "linear, not_larger, axes [2, 3]",
    "linear, not_smaller, axes [3, 2]",
    *(
        f"{mode}, cropped to {roi}"
        for mode in ("nearest", "cubic")
        for roi in ((0.25, 0.5, 0.75, 0.75), (0, 0, 1, 1))
    ),
)


@pytest.mark.parametrize("title", slowed(CASES, *SLOW))
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_a_whole_factor_is_one_loop_of_affine_indices() -> None:
    network = lowered(CASES["nearest to (2.0, 2.0)"])
    assert len(network.sdfg.arrays) == 2
    (tasklet,) = [n for n in network.state.nodes() if hasattr(n, "code")]
    assert tasklet.code.as_string == "_out = _a0"


def test_the_first_tables_hold_every_coordinate() -> None:
    network = lowered(CASES["linear to (7, 3), corners False"])
    *tables, last = [n for n in network.state.nodes() if hasattr(n, "code")]
    assert len(tables) == 4
    assert "floor" not in last.code.as_string


@pytest.mark.parametrize(
    ("attributes", "facts"),
    [
        ({"mode": "nearest", "exclude_outside": 1}, ["exclude_outside=1", "nearest"]),
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, ["tf_crop_and_resize", "roi"]),
        ({"keep_aspect_ratio_policy": "largest"}, ["keep_aspect_ratio_policy", "'largest'"]),
    ],
)
def test_refusals(attributes: dict[str, Any], facts: list[str]) -> None:
    case = Case(
        op="Resize",
        inputs=[random(1, 1, 4, 5), None, None, np.array([1, 1, 8, 10])],
        constants=[3],
        attributes=attributes,
        expected=[random(1, 1, 8, 10)],
    )
    with raises(NoImplementationError, "native:tables", *facts):
        lowered(case)


@pytest.mark.parametrize(
    ("shape", "roi", "attributes", "named"),
    [
        ((1, 1, 4, 5), [0.0, 1.0], {"coordinate_transformation_mode": "tf_crop_and_resize"}, "roi of 2"),
        ((1, 1, 0, 5), None, {"mode": "linear", "antialias": 1}, "size"),
        ((1, 1, 0, 5), None, {"keep_aspect_ratio_policy": "not_larger"}, "keep_aspect_ratio_policy"),
    ],
)
def test_what_has_no_coordinates_is_refused(
    shape: tuple[int, ...], roi: list[float] | None, attributes: dict[str, Any], named: str
) -> None:
    case = Case(
        op="Resize",
        inputs=[random(*shape), None if roi is None else np.array(roi), None, np.array([1, 1, 8, 10])],
        constants=[1, 3],
        attributes=attributes,
        expected=[random(1, 1, 8, 10)],
    )
    with raises(NoImplementationError, "Resize", named):
        lowered(case)

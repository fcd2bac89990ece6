"""The operators of torchvision, declared without their kernels."""

from __future__ import annotations

import functools
from typing import Any

import torch

_DECLARED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    *(
        f"{name}(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        f"int sampling_ratio, bool aligned) -> Tensor"
        for name in ("roi_align", "qroi_align")
    ),
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    *(
        f"{name}(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
        "-> (Tensor, Tensor)"
        for name in ("ps_roi_pool", "roi_pool")
    ),
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
    *(
        f"_{name}_backward(Tensor grad) -> Tensor"
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
    ),
)


@functools.cache
def declare_torchvision() -> Any:
    """Declare the operators of torchvision, whose C++ part does not load next to a CPU build of torch."""
    library = torch.library.Library("torchvision", "DEF")
    for schema in _DECLARED:
        library.define(schema)
    return library

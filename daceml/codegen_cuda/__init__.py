"""CUDA code for lowered SDFGs.

Here belong: finding and calling the CUDA toolchain, headers that bridge its versions, warp and vector
primitives, block sizes, and the emulation of kernels on the host for machines without a device.
"""

from __future__ import annotations

from daceml._bare_name import refuse_bare_name

refuse_bare_name(__name__)

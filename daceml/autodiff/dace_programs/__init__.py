"""Gradients inside DaCe programs: `requires_grad_`, `backward` and `grad`, as torch spells them.

    import daceml.autodiff.dace_programs

    @dace.program
    def gradient(x: dace.float64[20]):
        x.requires_grad_()
        loss = np.sum(np.log(1 + x * x))
        loss.backward()  # or torch.autograd.backward(loss)
        return x.grad

Importing this package makes DaCe's frontend know these names. Modules that are called in a program import it
by themselves; gradients of their parameters are added to `parameter.grad`.
"""

from __future__ import annotations

from daceml.autodiff.dace_programs.closure_tensor import ClosureTensor
from daceml.autodiff.dace_programs.frontend import register

__all__ = ["ClosureTensor", "register"]

register()

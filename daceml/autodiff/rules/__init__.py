"""Derivative rules of operators, one family a file; `daceml.autodiff.vjp` registers them."""

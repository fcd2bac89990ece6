"""Gradients of random uses of torch functions, compared with eager autograd and with finite differences."""

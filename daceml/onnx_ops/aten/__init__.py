"""Vendor kernels as implementations: each function says which call of torch's stable C ABI does the node."""

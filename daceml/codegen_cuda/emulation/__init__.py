"""Device code on a processor: kernels compiled as C++ against our headers, threads as fibres.

For machines without a device, and for what a device does not say: which barrier is missing, which array was
left.
"""

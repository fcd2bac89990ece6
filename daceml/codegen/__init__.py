"""From a lowered network to compiled code: driver, kernels, build."""

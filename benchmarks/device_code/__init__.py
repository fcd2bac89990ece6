"""What nvcc makes of generated kernels, held against what the kernels promise. Nothing runs."""

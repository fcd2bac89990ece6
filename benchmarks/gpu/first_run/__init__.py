"""One run that proves most of the CUDA path in ten minutes: bash benchmarks/gpu_first_run.sh."""

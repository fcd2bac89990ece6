"""What an operation does: bytes moved, floating-point operations, parallelism."""

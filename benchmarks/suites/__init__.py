"""Programs of others' test suites, compiled, next to eager PyTorch."""

"""A call of a module becomes a program: options, guards, keys, stages."""

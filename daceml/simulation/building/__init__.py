"""From a recorded trace to a task graph: one kind of dependency a file, in the order of build.py."""

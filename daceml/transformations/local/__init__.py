"""Level 2: fusion of maps and tasklets, and recomputation instead of storing; one transformation a file."""

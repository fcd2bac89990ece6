"""Level 3: memory layouts, transient reuse and lifetimes over a whole graph; one transformation a file."""

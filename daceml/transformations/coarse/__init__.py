"""Level 1: rewrites that use what operators mean, before any of them is lowered; one rewrite a file."""

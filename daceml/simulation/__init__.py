"""Task graphs, their replay, and what an optimisation would change; imports neither torch nor dace."""

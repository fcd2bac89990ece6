"""Device specifications with their sources, occupancy, rooflines and scaling; imports neither torch nor dace."""

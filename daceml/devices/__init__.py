"""Device specifications with sources, occupancy, rooflines and scaling; imports neither torch nor dace."""

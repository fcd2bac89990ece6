"""The C++ compiler, torch's functions declared for it, and the cache; knows nothing of SDFGs."""

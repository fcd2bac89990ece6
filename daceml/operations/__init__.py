"""One operation on one device: what it does, how long it took, and how long another would take."""

"""`daceml.verify`: compare a compiled model with eager PyTorch and float64, and name where they diverge."""

"""Everything that a first run takes along to a machine without a network: make gpu-kit."""

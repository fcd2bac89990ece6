"""Compare the times of two runs, and check that the machine is idle enough to do so."""

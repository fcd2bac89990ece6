"""Backward passes of whole DaCe programs: states, loops, branches, arrays that are written several times."""

"""Every variant of a model predicted, the most promising ones measured, and what each change is worth.

A `Space` (variant_space.py) says which variants there are, and `explore` (explore.py) searches it. What a
variant is, how it is compiled and how long it is predicted to take is in `daceml.tuning`. A `Library`
(step_database.py) keeps the measured times of steps.
"""

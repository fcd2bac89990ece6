"""Every variant of a model predicted, the most promising ones measured, and what each change is worth.

A `Variant` (variant.py) says how a model is run, and a `Space` (space.py) which variants there are. A
`Subject` (subject.py) lowers variants of one model for one call, and compiles the few that are measured.
`StepTimes` (step_times.py) says how long steps of programs take, from those that were measured before, which
a `Library` (library.py) keeps.
"""

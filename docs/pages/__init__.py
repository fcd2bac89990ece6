"""Makes pages of what the repository knows already: README, errors, docstrings, result files.

Each module but `hook` is pure: records and text in, markdown out. Nothing that is made is committed.
"""

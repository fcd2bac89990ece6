"""Edits of task graphs: each validates, leaves its graph as it is and returns another one.

`select` says which tasks; `difference` says what an edit changed.
"""

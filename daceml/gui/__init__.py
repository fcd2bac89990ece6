"""A local page: a model's graph with what could be done to it, a trace's timeline, variants as a plot.

`*_view.py` make plain data of what is shown; `page.py` makes one HTML file of such data and `assets/`;
`server.py` serves it here. The state of a guided optimization is in `daceml.exploration.guided`.
"""

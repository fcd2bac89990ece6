"""A local page: the graph of a model with what could be done to it, the timeline of a trace, variants as a plot.

`guided.py` holds the state of a guided optimisation and knows nothing of pages; `*_view.py` make plain data of
what is shown; `page.py` makes one HTML file of such data and `assets/`; `server.py` serves it on this machine.
"""

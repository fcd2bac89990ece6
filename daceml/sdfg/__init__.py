"""A thin adapter on dace: every call whose interface moved between dace's versions lives here.

Here belong: the network record, the builder of maps, the canonical form, outlining of kernels, the analysis
of
memlets and volumes, and static costs.
"""

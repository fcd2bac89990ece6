"""Collectives as the sends and receives that they are made of, on the links of a topology."""

"""Runs of several ranks: their step graphs, the collectives that join them, and what equal ranks share."""

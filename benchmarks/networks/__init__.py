"""Whole networks beside their peers: time, memory, compile time, and what the programs consist of."""

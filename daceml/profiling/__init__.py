"""Timers, statistics, trace readers and the operator database; imports neither torch nor dace."""

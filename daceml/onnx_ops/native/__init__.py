"""Operators written as computations over tensor expressions, one family a module."""

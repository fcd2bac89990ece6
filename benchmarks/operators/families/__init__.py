"""The table of `benchmarks.operators.draws`: how the operators of each family are used."""

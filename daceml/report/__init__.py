"""What a user reads: the explanation and profile of a compiled module, replays and predictions of runs."""

"""Models of operations: how long one takes, from what is known of others; needs neither torch nor dace."""

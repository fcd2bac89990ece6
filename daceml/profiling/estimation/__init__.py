"""How long an operation takes, from what is known of others; needs neither torch nor dace."""

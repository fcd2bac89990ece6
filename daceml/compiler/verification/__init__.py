"""Check after each pass that values are unchanged."""

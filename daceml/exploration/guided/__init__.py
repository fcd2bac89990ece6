"""The state of a guided optimization; the page shows it."""

"""Training on several ranks: what is predicted of it, and what compiled programs make of it."""

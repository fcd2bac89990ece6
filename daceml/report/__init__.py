"""What a user reads about a compiled module: explanation, verification, profile."""

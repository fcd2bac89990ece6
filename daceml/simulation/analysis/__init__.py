"""What a schedule says: what decides its length, and what has room."""

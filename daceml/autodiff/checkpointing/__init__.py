"""What a backward pass finds in memory, and what it computes again."""

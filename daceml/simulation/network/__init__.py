"""What it takes to send bytes between devices: links, how they are joined, and the time of collectives."""

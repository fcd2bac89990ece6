"""How far predicted durations are from measured ones."""

"""`daceml trace`: the commands that record runs and read traces."""

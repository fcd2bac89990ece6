"""What a step of a module does, from shapes alone: the part of predicting that imports torch."""

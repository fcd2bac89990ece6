"""How long operations took: measured, imported or predicted, on which device and with what software."""

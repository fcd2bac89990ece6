"""Training on several devices: what is predicted of it, beside what was measured."""

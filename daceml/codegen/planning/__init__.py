"""The order of steps, the lifetimes of arrays and their places in memory; no code is generated here."""

"""Level 4: schedules for a device: GPU maps, warps, vectors, collectives; one transformation a file."""

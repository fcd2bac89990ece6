"""What bodies of operators are written with: symbolic arrays that emit maps and tasklets."""

"""One call of a module becomes an exported program."""

"""Where the time of the test suite goes, and what it covers."""

"""Random uses by family; importing one fills the table."""

"""Measurements that others published, as rows of the database: one file for each kind of source."""

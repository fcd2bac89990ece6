"""Random graphs of torch functions: what the default recipe makes of them has to compute what eager does."""

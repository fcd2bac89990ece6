"""Blocks of networks that move more than they compute: how near to the memory's speed each compiler comes."""

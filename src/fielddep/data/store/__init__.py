"""Stores: encoded tables on disk, larger than memory, and how rows are read from them."""

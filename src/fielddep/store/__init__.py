"""Stores: encoded tables, in memory or on disk, and how batches are read from them."""

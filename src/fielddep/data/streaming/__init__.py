"""Streaming: a table of any size becomes a store; `encode` is where it begins."""

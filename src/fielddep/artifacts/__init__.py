"""Artifacts: what training leaves behind. Bundles, predictions from them, and RUN folders."""

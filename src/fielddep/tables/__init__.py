"""Tables: reading files and frames, atomic files, manifests, and folders that are complete or unfinished."""

"""Tables: readers and writers of files and frames, folders, files that are written whole or not at all."""

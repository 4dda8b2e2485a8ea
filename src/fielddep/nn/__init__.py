"""The model: embed, refine, interact, predict. Nothing here knows of files, progress bars or devices."""

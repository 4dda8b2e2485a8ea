"""The report: one HTML page on a trained model."""

"""Training: prepare, fit, measure; the loop, sparse optimizers, metrics, checkpoints and tree models."""

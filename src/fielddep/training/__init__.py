"""Training: the loop (fit -> run_epoch -> train_step), sparse optimisers, metrics, history, checkpoints."""

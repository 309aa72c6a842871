"""Optimizer state over several processes: the training script, its launcher, its configurations."""

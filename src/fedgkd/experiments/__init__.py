"""Runs: configuration, the loop over rounds, records and checkpoints on disk, personal models."""

"""Promoted caches that have forgotten: noticed, and made again."""

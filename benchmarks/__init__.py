"""Side-by-side measurements. ``make bench`` runs them all and writes ``benchmarks/results/latest.json``."""

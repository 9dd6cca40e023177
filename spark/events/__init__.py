"""Views made of events, which keep a state: folds, windows, matches."""

"""Documents and rows that differ are made anew: what there is to do, and how for each kind of view."""

"""Dead letters: what they hold, how they are told apart, and the words they are shown with."""

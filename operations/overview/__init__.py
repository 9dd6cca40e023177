"""A pipeline as somebody who watches it sees it: looked at again and again, remembered for an hour."""

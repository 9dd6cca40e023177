"""The model of Headwater: pipeline file, catalogue, changes, positions, codecs and views. Pure Python, no network."""

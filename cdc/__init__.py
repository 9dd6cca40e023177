"""The model of Headwater: pipeline file, catalogue, changes, positions, codecs and views. Pure Python.

Opens no connection, but for ``cdc.log``, the one reader of the log, which the rest of it never imports.
"""

"""The dual-write failure, shown for real, and the same load through headwater."""

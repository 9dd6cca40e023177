"""The warehouse's tables: merges, history, upkeep, erasing."""

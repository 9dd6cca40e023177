"""Why a document looks as it does."""

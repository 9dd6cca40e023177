"""A storefront whose sellers find what they have just saved. See README.md."""

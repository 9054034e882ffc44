"""Run the repository's checks and tests by group and count them."""

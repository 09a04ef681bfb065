"""Many experts together, and who is queried about which row."""

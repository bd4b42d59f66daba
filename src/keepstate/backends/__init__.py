"""Where entries live: one protocol (`base`), and a room for each kind of place."""

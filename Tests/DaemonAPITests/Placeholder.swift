// Placeholder until this room's first test.

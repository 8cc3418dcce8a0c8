"""One kind of desktop each; the core knows them by their name in the registry only."""

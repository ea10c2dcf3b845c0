"""One command per file, loaded only when it is called: listing tasks must not wait for torch."""

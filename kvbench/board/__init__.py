"""The board that lies in the repository: which stored answers stand on it, and which are stale."""

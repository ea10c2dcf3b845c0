"""Publishes the board of all methods, and a press among them."""

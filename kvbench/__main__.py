"""``python -m kvbench``, which does what the command ``kvbench`` does."""

from kvbench.cli.program import program

if __name__ == "__main__":
    program()

"""The pages of methods: of all, and of each."""

"""The `clover-edge` command."""

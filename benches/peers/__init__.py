"""What a user would run instead: one module for each runtime, all on the same codes and scales."""

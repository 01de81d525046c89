"""The pages of `kept view`."""

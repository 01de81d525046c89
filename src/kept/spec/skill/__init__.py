"""The config of skill training: sections, `_base_` files, and the spellings of its source."""

"""Models as judges: what they are asked, the scorer, and its component."""

"""Everything that a person sees: terminal, pages, reports, scaffolds and the demo."""

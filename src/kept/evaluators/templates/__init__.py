"""Templates in the language of Nunjucks, with bounds on their work."""

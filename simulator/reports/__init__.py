"""Results of simulations for people: tables, summaries, heat maps, self-contained HTML files."""

"""Programs: models as data. No torch here."""

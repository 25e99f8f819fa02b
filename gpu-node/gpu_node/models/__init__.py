"""Model families: configurations, weights from files, and builders of programs."""

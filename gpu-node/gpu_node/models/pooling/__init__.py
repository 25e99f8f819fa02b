"""Models that embed or score texts."""

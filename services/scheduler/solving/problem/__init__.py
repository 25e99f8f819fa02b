"""A placement problem as numbers: where groups may stand, and what an order of them costs."""

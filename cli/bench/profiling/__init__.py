"""`treadle profile`: what steps and operators cost on a device."""

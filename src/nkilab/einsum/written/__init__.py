"""The published generator's own rules, R1 to R11: what it prints, faults and all."""

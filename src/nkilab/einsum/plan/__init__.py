"""From a cascade to a loop tree: classes of ranks, fusion, layouts, placement, choice of instructions."""

"""The verbs of `nkilab`: options and examples; what they do is in other modules, loaded when they run."""
